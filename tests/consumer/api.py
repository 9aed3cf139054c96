"""An HTTP API for the tests: real sockets, answers by script, everything it was asked noted."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


@dataclass(frozen=True)
class Request:
    method: str
    headers: dict[str, str]
    body: bytes

    @property
    def key(self) -> str:
        return self.headers["idempotency-key"]


@dataclass(frozen=True)
class Answer:
    """`seconds` is how long the API takes; `status` 0 closes the connection without an answer."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    seconds: float = 0.0


def always(answer: Answer) -> Callable[[Request, int], Answer]:
    """Give every request the same answer."""
    return lambda _request, _before: answer


class Api:
    """Leaving `with` ends it. `answer` is given each request and how often its key came before."""

    def __init__(self, answer: Callable[[Request, int], Answer], port: int = 0) -> None:
        self.requests: list[Request] = []
        self.connections = 0
        self.released = threading.Event()
        self._lock = threading.Lock()
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                api.connections += 1

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except ConnectionError:
                    self.close_connection = True

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", "0"))
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Request(self.command, headers, self.rfile.read(length))
                with api._lock:
                    before = sum(1 for one in api.requests if one.key == request.key)
                    api.requests.append(request)
                given = answer(request, before)
                api.released.wait(given.seconds)
                if not given.status:
                    self.close_connection = True
                    return
                self.send_response(given.status)
                for name, value in given.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(given.body)))
                self.end_headers()
                self.wfile.write(given.body)

            do_PUT = do_POST  # noqa: N815 - the name that http.server looks for

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/charges"

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def keys(self) -> list[str]:
        """The keys of all requests so far."""
        return [request.key for request in self.requests]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
