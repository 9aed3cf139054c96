"""Ordering keys that are held up: by which row, since when, and who waits behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg.rows import class_row

from bridge.console.pages.here import Here
from bridge.database.statements import load
from bridge.held_keys import HeldKey

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

_SHOWN = 200


def page(request: Request) -> Response:
    """Show the longest held keys."""
    here = Here(request)
    with here.reads.reading() as conn, conn.cursor(row_factory=class_row(HeldKey)) as cursor:
        held = cursor.execute(
            load("browse_holds", here.schema), {"row_limit": _SHOWN + 1}
        ).fetchall()
    return here.render("keys.html", held=held[:_SHOWN], is_cut=len(held) > _SHOWN, shown=_SHOWN)
