"""A small OTLP receiver: what the shop's processes report about their work ends here."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Self

from google.protobuf.message import (  # type: ignore[import-untyped] # has no stubs of its own
    DecodeError,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from bridge.demo.shop.trace_tree import Span
from bridge.local.ports import LOOPBACK

if TYPE_CHECKING:
    from types import TracebackType

_PATH = "/v1/traces"
_ERROR = 2  # opentelemetry.proto.trace.v1.Status.StatusCode


class TraceCollector:
    """Listens on a free port of the loopback interface while it is open; OTLP over HTTP."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: dict[tuple[str, str], Span] = {}
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                code = 404
                if self.path == _PATH:
                    code = 200 if collector.take(body) else 400
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(code)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Say nothing: the screen belongs to the demo."""

        self._server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def endpoint(self) -> str:
        """The value of OTEL_EXPORTER_OTLP_ENDPOINT for whoever is to report here."""
        return f"http://{LOOPBACK}:{self._server.server_port}"

    def spans(self) -> list[Span]:
        """Return everything reported so far."""
        with self._lock:
            return list(self._spans.values())

    def take(self, body: bytes) -> bool:
        """Take in one export; False where it cannot be read."""
        request = ExportTraceServiceRequest()
        try:
            request.ParseFromString(body)
        except DecodeError:
            return False
        for resource in request.resource_spans:
            names = {one.key: one.value.string_value for one in resource.resource.attributes}
            service = names.get("service.name", "?")
            found = [
                Span(
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex() or None,
                    name=span.name,
                    service=service,
                    start_ns=span.start_time_unix_nano,
                    end_ns=span.end_time_unix_nano,
                    links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
                    failed=span.status.code == _ERROR,
                )
                for scope in resource.scope_spans
                for span in scope.spans
            ]
            with self._lock:
                # An export that was not answered in time comes again.
                self._spans.update({(span.trace_id, span.span_id): span for span in found})
        return True

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
