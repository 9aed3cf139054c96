"""The stream that tells open pages of news, and the sign of life."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import PlainTextResponse, StreamingResponse

from bridge.console.pages.here import Here

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


async def stream(request: Request) -> Response:
    """Send server-sent events; 503 where too many listen, then pages ask by themselves."""
    pulse = Here(request).pulse
    if pulse.is_full:
        return PlainTextResponse("too many listeners\n", 503, {"Retry-After": "60"})
    # X-Accel-Buffering: nginx would hold the events back.
    headers = {"X-Accel-Buffering": "no"}
    return StreamingResponse(pulse.listen(), media_type="text/event-stream", headers=headers)


async def alive(request: Request) -> Response:
    """Answer that the process lives; says nothing about the database."""
    del request
    return PlainTextResponse("ok\n")
