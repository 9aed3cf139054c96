"""Serves the console until SIGTERM or SIGINT."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import uvicorn

from bridge.console.app import create_app
from bridge.errors import OutboxError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from starlette.applications import Starlette

    from bridge.settings import Settings

_DRAIN_SECONDS = 10
_BACKLOG = 256


class ListenError(OutboxError):
    """The address cannot be listened on."""


def serve(
    settings: Settings,
    *,
    announce: Callable[[str], None],
    shown_settings: Sequence[tuple[str, str, str]] = (),
) -> None:
    """Listen, call `announce` with the URL, and serve until a signal ends it in good order.

    Open requests are answered, running actions end after their batch; a second signal forces the
    end. Raises ListenError.
    """
    listener = _listen(settings.console.host, settings.console.port)
    port = listener.getsockname()[1]
    app = create_app(settings, port=port, shown_settings=shown_settings)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        # Who connects is who connects: the console itself decides which proxy it believes.
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_DRAIN_SECONDS,
        ws="none",
    )
    with listener:
        _Server(config, app, lambda: announce(_url(settings, port))).run(sockets=[listener])


class _Server(uvicorn.Server):
    """Lets event streams go when it is asked to stop; they would hold it up otherwise."""

    def __init__(self, config: uvicorn.Config, app: Starlette, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._app = app
        self._tell_started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._tell_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.state.pulse.stop()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # uvicorn raises the signal again once it has ended; ours is a clean end.
        self.force_exit = self.should_exit
        super().handle_exit(sig, frame)
        self._captured_signals.clear()


def _listen(host: str, port: int) -> socket.socket:
    bare = host.strip("[]")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            bare, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ListenError(
            f"console.host = {host!r} is no address of this machine: {error.strerror}"
        ) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ListenError(
            f"cannot listen on {host} port {port}: {error.strerror}; choose another console.port "
            "(0 takes a free one)"
        ) from error
    return listener


def _url(settings: Settings, port: int) -> str:
    if settings.console.public_url:
        return settings.console.public_url
    host = settings.console.host.strip("[]")
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}/"
