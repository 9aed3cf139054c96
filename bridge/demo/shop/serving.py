"""What the shop's HTTP services have in common: health, errors, a span a request, an end."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Any

import orjson
import uvicorn
from opentelemetry import propagate, trace
from starlette.responses import JSONResponse

from bridge.errors import OutboxError
from bridge.local.ports import LOOPBACK

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

_HEALTH = "/health"
_LINGER_SECONDS = 2


def arguments() -> dict[str, Any]:
    """Return what the demo told this process on its command line; secrets come by settings."""
    told: dict[str, Any] = orjson.loads(sys.argv[1])
    return told


def serve(app: FastAPI, *, port: int) -> None:
    """Serve on the loopback interface until SIGTERM, then end with exit code 0."""
    # uvicorn raises the signal again once it has ended in good order.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    app.add_exception_handler(OutboxError, _unavailable)

    @app.get(_HEALTH)
    def health() -> str:
        return "ok"

    uvicorn.run(
        TracedRequests(app),
        host=LOOPBACK,
        port=port,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=_LINGER_SECONDS,
    )


def _unavailable(_request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 503)


class TracedRequests:
    """Opens a SERVER span for each request, in the caller's trace where it sent its context."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._tracer = trace.get_tracer("bridge.demo.shop")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, within its span."""
        if scope["type"] != "http" or scope["path"] == _HEALTH:
            await self._app(scope, receive, send)
            return
        carrier = {name.decode(): text.decode("latin-1") for name, text in scope["headers"]}
        with self._tracer.start_as_current_span(
            f"{scope['method']} {scope['path']}",
            context=propagate.extract(carrier),
            kind=trace.SpanKind.SERVER,
            attributes={"http.request.method": scope["method"], "url.path": scope["path"]},
        ):
            await self._app(scope, receive, send)
