"""The relays: who lives, who is silent, and what each has in hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg.rows import dict_row

from bridge.console.pages.here import Here
from bridge.database.statements import load
from bridge.monitor import relays

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


def page(request: Request) -> Response:
    """Show every registered relay."""
    here = Here(request)
    with here.reads.reading() as conn:
        registered = relays(conn, here.schema)
        with conn.cursor(row_factory=dict_row) as cursor:
            hands = {
                row["relay_id"]: row
                for row in cursor.execute(load("count_relay_hands", here.schema))
            }
    return here.render("relays.html", relays=registered, hands=hands)
