"""Pages for what went wrong: not let in, not there, no database, a mistake of ours."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, cast

from starlette.concurrency import run_in_threadpool

from bridge.console.jobs import TooManyJobs
from bridge.console.pages.here import Here
from bridge.errors import DatabaseError, OperationError, SchemaError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from bridge.console.access import Refusal

_log = logging.getLogger(__name__)


async def refused(request: Request, error: Exception) -> Response:
    """Say why a request is not let in."""
    refusal = cast("Refusal", error)
    return await _problem(request, refusal.status, "Not possible", str(refusal))


async def failed(request: Request, error: Exception) -> Response:
    """Say what the database, the schema or an action objected to."""
    if isinstance(error, SchemaError):
        return await _problem(request, 503, "The schema does not fit", str(error))
    if isinstance(error, DatabaseError):
        if "statement timeout" in str(error):
            text = (
                "The database took longer than console.statement_timeout allows. Narrow the page "
                "down, or look at what else the database is doing."
            )
            return await _problem(request, 503, "That took too long", text)
        return await _problem(request, 503, "The database does not answer", str(error))
    if isinstance(error, OperationError):
        return await _problem(request, 422, "That does not fit", str(error))
    status = 503 if isinstance(error, TooManyJobs) else 500
    return await _problem(request, status, "That did not work", str(error))


async def not_found(request: Request, error: Exception) -> Response:
    """Say that there is no such page."""
    status = getattr(error, "status_code", 404)
    return await _problem(request, status, "No such page", "There is nothing at this address.")


async def unexpected(request: Request, error: Exception) -> Response:
    """Say that the console made a mistake; the log says which."""
    _log.error("%s failed", request.url.path, exc_info=error)
    text = f"unexpected {type(error).__name__}; the console's log says where it comes from"
    return await _problem(request, 500, "A mistake of the console", text)


async def _problem(request: Request, status: int, title: str, text: str) -> Response:
    return await run_in_threadpool(
        Here(request).render, "problem.html", status, title=title, text=text, status_code=status
    )
