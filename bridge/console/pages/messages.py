"""The list of messages, narrowed down by a URL that can be shared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.console.errands import ERRANDS
from bridge.console.message_list import COUNT_LIMIT, read_messages
from bridge.console.pages.here import Here, filter_of
from bridge.console.security import identity_of
from bridge.lifecycle import Status
from bridge.operations import STARTS

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from bridge.console.errands import Errand
    from bridge.console.filters import MessageFilter


def page(request: Request) -> Response:
    """Show one page of messages."""
    here = Here(request)
    wanted = filter_of(request.query_params)
    with here.reads.reading() as conn:
        found = read_messages(conn, here.schema, wanted)
    return here.render(
        "messages.html",
        wanted=wanted,
        given=request.query_params,
        found=found,
        statuses=list(Status),
        window=COUNT_LIMIT,
        errands=list(ERRANDS.values()),
        bulk=_bulk(wanted) if identity_of(request).may_act else [],
    )


def _bulk(wanted: MessageFilter) -> list[Errand]:
    """List what may be done to all that match: actions that start from every status asked for."""
    if not wanted.statuses:
        return []
    return [
        errand for errand in ERRANDS.values() if set(wanted.statuses) <= set(STARTS[errand.action])
    ]
