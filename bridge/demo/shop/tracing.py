"""Traces of the shop's own services: the SDK as OTEL_* variables say, a span for each HTTP call."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from opentelemetry import trace

from bridge.settings import are_traces_wanted
from bridge.telemetry.sdk import start_tracing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
_CLOSE_SECONDS = 3.0


@contextmanager
def traced() -> Iterator[None]:
    """Report this process's spans, the last ones at the end of the block."""
    tracing = start_tracing() if are_traces_wanted("shop") else None
    try:
        yield
    finally:
        if tracing is not None:
            tracing.close(_CLOSE_SECONDS)


def client_span(name: str) -> AbstractContextManager[trace.Span]:
    """Return the CLIENT span of an HTTP call; an exception that leaves it marks it as failed."""
    tracer = trace.get_tracer("bridge.demo.shop")
    return tracer.start_as_current_span(name, kind=trace.SpanKind.CLIENT)
