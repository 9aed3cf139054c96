"""The console as an ASGI application: what is built from the settings, and which page is where."""

from __future__ import annotations

from contextlib import asynccontextmanager
from importlib import resources
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount, Route

from bridge.console.access import Refusal, door_for
from bridge.console.connections import ActionConnections, ReadConnections
from bridge.console.examination import Examination
from bridge.console.hosts import Hosts
from bridge.console.jobs import Jobs
from bridge.console.masks import Masks
from bridge.console.pages import (
    acting,
    audit,
    destinations,
    events,
    failures,
    keys,
    message,
    messages,
    overview,
    problems,
    relays,
    session,
    system,
)
from bridge.console.pulse import Pulse
from bridge.console.rendering import Templates
from bridge.console.security import Guard
from bridge.console.sessions import Sessions
from bridge.console.static_files import CachedFiles
from bridge.errors import OutboxError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from bridge.settings import Settings


def create_app(
    settings: Settings, *, port: int = 0, shown_settings: Sequence[tuple[str, str, str]] = ()
) -> Starlette:
    """Build the application.

    `port` is the one listened on; it keeps the cookies of two consoles on one machine apart.
    `shown_settings` (name, value, source) are what the system page shows, without secrets.
    """
    console = settings.console
    public = urlsplit(console.public_url or "")
    prefix = public.path.rstrip("/")
    https = public.scheme == "https"
    sessions = Sessions(
        console.secret.get_secret_value() if console.secret else None,
        port=port,
        secure=https,
        path=prefix,
    )
    reads = ReadConnections(settings)
    jobs = Jobs()
    pulse = Pulse(reads, console.refresh)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        yield
        jobs.close()
        reads.close()

    handlers: dict[Any, Any] = {
        Refusal: problems.refused,
        OutboxError: problems.failed,
        404: problems.not_found,
        405: problems.not_found,
        500: problems.unexpected,
    }
    app = Starlette(
        routes=_routes(),
        lifespan=lifespan,
        exception_handlers=handlers,
        middleware=[
            Middleware(
                Guard,
                door=door_for(console),
                hosts=Hosts(console),
                sessions=sessions,
                prefix=prefix,
                https=https,
            )
        ],
    )
    app.state.settings = settings
    app.state.shown_settings = shown_settings
    app.state.reads = reads
    app.state.acts = ActionConnections(settings)
    app.state.sessions = sessions
    app.state.templates = Templates(prefix=prefix, schema=settings.database.schema_name)
    app.state.masks = Masks(console.masks)
    app.state.jobs = jobs
    app.state.pulse = pulse
    app.state.examination = Examination(settings)
    return app


def _routes() -> list[Route | Mount]:
    files = resources.files("bridge.console").joinpath("static")
    return [
        Route("/", overview.page),
        Route("/messages", messages.page),
        Route("/messages/{outbox_id:int}", message.page),
        Route("/find", message.find),
        Route("/failures", failures.page),
        Route("/keys", keys.page),
        Route("/destinations", destinations.page),
        Route("/destinations/change", destinations.change),
        Route("/destinations/set", destinations.set_switch, methods=["POST"]),
        Route("/relays", relays.page),
        Route("/audit", audit.page),
        Route("/audit/verify", audit.verify, methods=["POST"]),
        Route("/system", system.page),
        Route("/system/examine", system.examine, methods=["POST"]),
        Route("/act", acting.preview_page),
        Route("/act", acting.run, methods=["POST"]),
        Route("/jobs/{key}", acting.job_page),
        Route("/jobs/{key}/stop", acting.stop, methods=["POST"]),
        Route("/theme", session.theme, methods=["POST"]),
        Route("/events", events.stream),
        Route("/livez", events.alive),
        Mount("/static", CachedFiles(directory=str(files)), name="static"),
    ]
