"""FAILED rows by error and destination, each group with what may be done about it."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from psycopg.rows import tuple_row

from bridge.console.advice import advice_for
from bridge.console.pages.here import Here
from bridge.database.statements import load
from bridge.monitor import FailureGroup

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


def page(request: Request) -> Response:
    """Show the groups, the largest first."""
    here = Here(request)
    with here.reads.reading() as conn, conn.cursor(row_factory=tuple_row) as cursor:
        found = cursor.execute(load("count_failed", here.schema)).fetchall()
    groups = sorted((FailureGroup(*row) for row in found), key=lambda group: -group.count)
    return here.render(
        "failures.html",
        groups=[(group, _query(group), advice_for(group.error_code)) for group in groups],
        total=sum(group.count for group in groups),
    )


def _query(group: FailureGroup) -> str:
    parameters = {
        "status": "FAILED",
        "destination": group.destination,
        "error": group.error_code or "",
    }
    return urlencode({name: value for name, value in parameters.items() if value})
