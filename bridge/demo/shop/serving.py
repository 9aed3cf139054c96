"""What the shop's HTTP services have in common: health, errors, a span a request, an end."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Any

import orjson
import uvicorn
from fastapi import FastAPI
from starlette.responses import JSONResponse

from bridge.demo.shop.tracing import traced
from bridge.errors import OutboxError
from bridge.local.ports import LOOPBACK

if TYPE_CHECKING:
    from starlette.requests import Request

HEALTH_PATH = "/health"
_LINGER_SECONDS = 2


def arguments() -> dict[str, Any]:
    """Return what the demo told this process on its command line; secrets come by settings."""
    told: dict[str, Any] = orjson.loads(sys.argv[1])
    return told


def new_app(title: str) -> FastAPI:
    """Return an application that answers its health check, and 503 where its database is away.

    FastAPI itself opens a SERVER span for each other request, in the caller's trace.
    """
    app = FastAPI(
        title=title,
        telemetry={
            "operation_spans": False,
            "metrics": False,
            "logs": False,
            "exclude": lambda scope: bool(scope["path"] == HEALTH_PATH),
        },
    )

    @app.get(HEALTH_PATH)
    def health() -> str:
        return "ok"

    @app.exception_handler(OutboxError)
    def unavailable(_request: Request, error: OutboxError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 503)

    return app


def serve(app: FastAPI, *, port: int) -> None:
    """Serve on the loopback interface until SIGTERM, then end with exit code 0."""
    # uvicorn raises the signal again once it has ended in good order.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with traced():
        uvicorn.run(
            app,
            host=LOOPBACK,
            port=port,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=_LINGER_SECONDS,
        )
