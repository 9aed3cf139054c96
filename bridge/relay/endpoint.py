"""A small HTTP server for probes and metrics that cannot hurt the relay."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import structlog

from bridge.errors import OutboxError
from bridge.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MOST_CONNECTIONS = 8
"""Connections served at a time; further ones are refused at once."""
_READ_TIMEOUT = 5.0
LONGEST_CONNECTION = 10.0
"""Seconds that a connection may last, whatever its client does."""
_POLL = 0.2
PLAIN = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a page says."""

    status: HTTPStatus
    content_type: str
    body: bytes


class Endpoint:
    """Serves pages on one port, each request in a thread of its own, a bounded number of them.

    `pages` maps paths to functions that are given the request's Accept header. Only GET and HEAD;
    connections close after each answer, and are cut when they take too long.
    """

    def __init__(self, host: str, port: int, pages: Mapping[str, Callable[[str], Answer]]) -> None:
        self._host = host
        self._port = port
        self._pages = pages
        self._server: _Server | None = None
        self._log = structlog.get_logger("bridge.relay.endpoint")

    @property
    def port(self) -> int:
        """The port in use, also where a free one was asked for; 0 while none is."""
        return self._server.server_port if self._server is not None else 0

    def open(self) -> None:
        """Listen and serve; raises OutboxError where the address cannot be had."""
        try:
            family, *_, address = socket.getaddrinfo(
                self._host, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            self._server = _Server(family, address[:2], self._pages)
        except OSError as error:
            raise OutboxError(
                f"http.host = {self._host}, http.port = {self._port} cannot be listened on: "
                f"{error.strerror or error}; choose another port, 0 for any free one, or leave "
                "http.port out to serve no probes and metrics"
            ) from error
        threading.Thread(
            target=self._server.serve_forever, args=(_POLL,), name="outbox-bridge-http", daemon=True
        ).start()
        self._log.info("serving probes and metrics", host=self._host, port=self.port)

    def close(self) -> None:
        """Stop listening; safe to call twice, or without `open`."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()


class _Server(HTTPServer):
    allow_reuse_address = True
    request_queue_size = 16

    def __init__(
        self,
        family: socket.AddressFamily,
        address: tuple[Any, ...],
        pages: Mapping[str, Callable[[str], Answer]],
    ) -> None:
        self.address_family = family
        self.pages = pages
        self._open: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind without asking DNS for the machine's name, as the base class would."""
        super(HTTPServer, self).server_bind()
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]  # str and int for TCP

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own, or refuse it."""
        with self._lock:
            is_full = len(self._open) >= MOST_CONNECTIONS
            if not is_full:
                self._open[request] = time.monotonic()
        if is_full:
            self.shutdown_request(request)
            return
        threading.Thread(
            target=self._serve,
            args=(request, client_address),
            name="outbox-bridge-http-request",
            daemon=True,
        ).start()

    def _serve(self, request: Any, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError:
            pass  # the client is gone, or was cut
        except Exception:  # noqa: BLE001 - a page that fails must not end up on stderr as a traceback of the server
            structlog.get_logger("bridge.relay.endpoint").exception("a request failed")
        finally:
            with self._lock:
                self._open.pop(request, None)
            self.shutdown_request(request)

    def service_actions(self) -> None:
        """Cut connections that last too long; called several times a second."""
        before = time.monotonic() - LONGEST_CONNECTION
        with self._lock:
            late = [request for request, since in self._open.items() if since < before]
            for request in late:
                try:
                    request.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue  # gone meanwhile


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = f"outbox-bridge/{__version__}"
    sys_version = ""
    default_request_version = "HTTP/1.0"  # or garbage would be answered without a status line
    timeout = _READ_TIMEOUT
    error_message_format = "%(code)d %(message)s\n"
    error_content_type = PLAIN

    def do_GET(self) -> None:
        """Answer a request."""
        page = self.server.pages.get(urlsplit(self.path).path)
        if page is None:
            names = " ".join(self.server.pages)
            answer = Answer(HTTPStatus.NOT_FOUND, PLAIN, f"not here; there are: {names}\n".encode())
        else:
            answer = page(self.headers.get("Accept", ""))
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_HEAD = do_GET  # noqa: N815 - see above

    def _refuse(self) -> None:
        self.send_response(HTTPStatus.METHOD_NOT_ALLOWED)
        self.send_header("Allow", "GET, HEAD")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _refuse  # noqa: N815 - see above

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Log nothing: probes come every few seconds."""
