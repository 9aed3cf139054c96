"""The create span of a writer, and what travels in the row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from opentelemetry import trace
from opentelemetry.instrumentation.psycopg import PsycopgInstrumentor
from opentelemetry.sdk.trace import TracerProvider, sampling
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import bridge
from bridge import (
    InvalidMessageError,
    Message,
    TransactionStateError,
    enqueue,
    enqueue_many,
)
from bridge.telemetry import names
from tests.fixtures.postgres import on_one_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.sdk.trace import ReadableSpan

pytestmark = on_one_server

FIELDS: dict[str, Any] = {"event_type": "order.created", "destination": "orders"}


class Writer:
    """A process with an SDK, and its spans."""

    def __init__(self, sampler: sampling.Sampler) -> None:
        self.provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        self._kept = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._kept))
        self.tracer = self.provider.get_tracer("shop")

    @property
    def created(self) -> list[ReadableSpan]:
        found = self._kept.get_finished_spans()
        return [span for span in found if span.name.startswith("create")]


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Writer:
    made = Writer(sampling.DEFAULT_ON)
    # The API lets nobody replace a provider, not even a test.
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", made.provider)
    return made


@pytest.fixture
def conn(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database_url) as opened:
        yield opened


def headers(conn: psycopg.Connection[Any]) -> dict[str, dict[str, str]]:
    return dict(conn.execute("select message_key, headers from app_outbox").fetchall())


def traceparent(span: ReadableSpan) -> str:
    context = span.get_span_context()
    assert context is not None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def test_enqueue_makes_a_create_span_in_the_callers_trace_and_stores_its_context(
    conn: psycopg.Connection[Any], writer: Writer
) -> None:
    with writer.tracer.start_as_current_span("business") as business:
        result = enqueue(conn, **FIELDS, message_key="k", payload={})
        again = enqueue(conn, **FIELDS, message_key="k", payload={})
    first, second = writer.created
    assert (first.name, first.kind) == ("create orders", trace.SpanKind.PRODUCER)
    assert first.parent is not None
    assert first.parent.span_id == business.get_span_context().span_id
    assert headers(conn) == {"k": {"traceparent": traceparent(first)}}
    assert dict(first.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "create",
        "messaging.operation.type": "create",
        "messaging.destination.name": "orders",
        names.OUTBOX_EVENT_TYPE: "order.created",
        names.OUTBOX_MESSAGE_KEY: "k",
        names.OUTBOX_ID: result.outbox_id,
    }
    assert again.created is False
    assert (second.attributes or {})[names.OUTBOX_DUPLICATE] is True


def test_each_of_many_messages_has_its_own_create_span(
    conn: psycopg.Connection[Any], writer: Writer
) -> None:
    with writer.tracer.start_as_current_span("business"):
        messages = [Message(**FIELDS, message_key=f"k{n}", payload={}) for n in (2, 1)]
        results = enqueue_many(conn, messages)
    found = headers(conn)
    spans = {(span.attributes or {})[names.OUTBOX_ID]: span for span in writer.created}
    for message, result in zip(messages, results, strict=True):
        span = spans[result.outbox_id]
        assert found[message.message_key] == {"traceparent": traceparent(span)}
        assert (span.attributes or {})[names.OUTBOX_MESSAGE_KEY] == message.message_key


async def test_asynchronous_enqueue_does_the_same(database_url: str, writer: Writer) -> None:
    async with await psycopg.AsyncConnection.connect(database_url) as conn:
        await bridge.enqueue_async(conn, **FIELDS, message_key="a", payload={})
        await bridge.enqueue_many_async(conn, [Message(**FIELDS, message_key="b", payload={})])
    assert [(span.attributes or {})[names.OUTBOX_MESSAGE_KEY] for span in writer.created] == [
        *("a", "b")
    ]


def test_trace_that_is_not_sampled_travels_without_a_span(
    conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(sampling.ALWAYS_OFF)
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", writer.provider)
    with writer.tracer.start_as_current_span("business") as business:
        enqueue(conn, **FIELDS, message_key="a", payload={})
        enqueue_many(conn, [Message(**FIELDS, message_key="b", payload={})])
    context = business.get_span_context()
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    assert parent[-1] in "02"
    assert headers(conn) == {"a": {"traceparent": parent}, "b": {"traceparent": parent}}
    assert writer.created == []


def test_message_with_its_own_traceparent_keeps_it_and_begins_no_span(
    conn: psycopg.Connection[Any], writer: Writer
) -> None:
    state = trace.TraceState([("vendor", "x")])
    outer = trace.SpanContext(
        1, 2, is_remote=True, trace_flags=trace.TraceFlags(1), trace_state=state
    )
    with trace.use_span(trace.NonRecordingSpan(outer)):
        enqueue(conn, **FIELDS, message_key="a", payload={}, headers={"traceparent": "mine"})
        enqueue(conn, **FIELDS, message_key="b", payload={})
    found = headers(conn)
    # A tracestate belongs to its traceparent.
    assert found["a"] == {"traceparent": "mine"}
    assert found["b"]["tracestate"] == "vendor=x"
    assert len(writer.created) == 1


@pytest.mark.parametrize("broken", ["message", "statement"])
def test_error_ends_the_span_as_failed_and_reaches_the_caller(
    broken: str, conn: psycopg.Connection[Any], writer: Writer
) -> None:
    if broken == "message":
        with pytest.raises(InvalidMessageError):
            enqueue(conn, **FIELDS, message_key="", payload={})
        expected = "bridge.errors.InvalidMessageError"
    else:
        conn.execute("set transaction read only")
        with pytest.raises(TransactionStateError):
            enqueue(conn, **FIELDS, message_key="k", payload={})
        expected = "psycopg.errors.ReadOnlySqlTransaction"
    (span,) = writer.created
    assert span.status.status_code is trace.StatusCode.ERROR
    assert (span.attributes or {})[names.ERROR_TYPE] == expected


def test_broken_processor_does_not_break_the_transaction(
    conn: psycopg.Connection[Any], writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(SimpleSpanProcessor, "on_start", broken)
    enqueue(conn, **FIELDS, message_key="a", payload={})
    monkeypatch.undo()
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", writer.provider)
    monkeypatch.setattr(SimpleSpanProcessor, "on_end", broken)
    enqueue(conn, **FIELDS, message_key="b", payload={})
    assert set(headers(conn)) == {"a", "b"}


def test_instrumentation_of_psycopg_leaves_rows_and_spans_as_they_are(
    database_url: str, writer: Writer
) -> None:
    instrumentor = PsycopgInstrumentor()
    instrumentor.instrument(
        tracer_provider=writer.provider, enable_commenter=True, skip_dep_check=True
    )
    try:
        with psycopg.connect(database_url) as conn:
            enqueue(conn, **FIELDS, message_key="k", payload={})
            enqueue_many(conn, [Message(**FIELDS, message_key="m", payload={})])
            found = headers(conn)
    finally:
        instrumentor.uninstrument()
    spans = {
        str((span.attributes or {})[names.OUTBOX_MESSAGE_KEY]): span for span in writer.created
    }
    assert found == {key: {"traceparent": traceparent(span)} for key, span in spans.items()}
    assert set(spans) == {"k", "m"}
