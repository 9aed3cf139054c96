"""Process spans, settings of traces, log fields, names."""

from __future__ import annotations

import io
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from opentelemetry import baggage, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.semconv.schemas import Schemas

from bridge.settings import are_traces_wanted
from bridge.telemetry import names
from bridge.telemetry.context import trace_id_of
from bridge.telemetry.logging import CalmTelemetry, configure_logging
from bridge.telemetry.sdk import start_tracing
from bridge.telemetry.tracing import processing, processing_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.sdk.trace import ReadableSpan

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEADERS = (
    ("outbox-id", b"7"),
    ("outbox-attempt", b"2"),
    ("event-type", b"order.created"),
    ("idempotency-key", b"k"),
    ("traceparent", f"00-{TRACE}-{SPAN}-01".encode()),
    ("baggage", b"tenant=a"),
    ("binary", b"\xff\x00"),
    ("empty", None),
)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """The spans of a process with an SDK."""
    provider, kept = TracerProvider(shutdown_on_exit=False), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", provider)
    return kept


@pytest.fixture
def _restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def only(spans: InMemorySpanExporter) -> ReadableSpan:
    (span,) = spans.get_finished_spans()
    return span


@pytest.mark.parametrize("as_child", [False, True])
def test_process_span_links_to_the_creation_and_is_its_child_on_demand(
    spans: InMemorySpanExporter, *, as_child: bool
) -> None:
    with processing(HEADERS, topic="orders", as_child=as_child) as current:
        assert baggage.get_baggage("tenant") == "a"
        inside = trace.get_current_span().get_span_context()
        current.mark_duplicate()
    assert baggage.get_baggage("tenant") is None
    span = only(spans)
    assert span.context == inside
    assert current.trace_id == f"{inside.trace_id:032x}"
    (link,) = span.links
    assert (f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}") == (TRACE, SPAN)
    assert (current.trace_id == TRACE) is as_child
    assert (span.parent is not None) is as_child
    attributes = span.attributes or {}
    assert attributes[names.OUTBOX_ID] == 7
    assert attributes[names.OUTBOX_ATTEMPT] == 2
    assert attributes[names.OUTBOX_DUPLICATE] is True


@pytest.mark.parametrize(
    "headers",
    [
        (),
        None,
        [("traceparent", b"\xff")],
        {"traceparent": "00-0-0-1"},
        [("outbox-id", b"x"), ("traceparent", None)],
    ],
)
def test_record_of_others_makes_a_span_without_link(
    headers: Any, spans: InMemorySpanExporter
) -> None:
    with processing(headers, topic="orders", as_child=True):
        pass
    assert only(spans).links == ()


def test_error_of_the_handler_marks_the_span_and_goes_on(spans: InMemorySpanExporter) -> None:
    with pytest.raises(LookupError), processing(HEADERS, topic="orders"):
        raise LookupError("none")
    span = only(spans)
    assert span.status.status_code is trace.StatusCode.ERROR
    assert (span.attributes or {})[names.ERROR_TYPE] == "LookupError"
    assert [event.name for event in span.events] == ["exception"]


def test_cancelled_handler_has_not_failed(spans: InMemorySpanExporter) -> None:
    with pytest.raises(KeyboardInterrupt), processing(HEADERS, topic="orders"):
        raise KeyboardInterrupt
    assert only(spans).status.status_code is trace.StatusCode.UNSET


def test_batch_span_links_to_at_most_128_sampled_messages(spans: InMemorySpanExporter) -> None:
    unsampled = {"traceparent": f"00-{TRACE}-{SPAN}-00"}
    with processing_batch([unsampled, *[HEADERS] * 200], topic="orders", group="g"):
        pass
    span = only(spans)
    assert len(span.links) == 128
    assert all(link.context.trace_flags.sampled for link in span.links)
    assert (span.attributes or {})[names.MESSAGING_BATCH_MESSAGE_COUNT] == 201


def test_without_sdk_a_child_still_passes_the_context_on() -> None:
    with processing(HEADERS, topic="orders", as_child=True) as current:
        assert current.trace_id == TRACE
        assert f"{trace.get_current_span().get_span_context().span_id:016x}" == SPAN


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, False),
        ({"OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_TRACES_EXPORTER": " None ", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "True"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, True),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
    ],
)
def test_standard_variables_alone_say_whether_there_are_traces(
    given: dict[str, str], monkeypatch: pytest.MonkeyPatch, *, wanted: bool
) -> None:
    environment = dict(given)
    monkeypatch.setattr("os.environ", environment)
    assert are_traces_wanted("service") is wanted
    assert environment.items() >= {n: t for n, t in given.items() if t}.items()
    if wanted:
        assert environment["OTEL_TRACES_EXPORTER"] == given.get("OTEL_TRACES_EXPORTER", "otlp")
        assert environment["OTEL_EXPORTER_OTLP_PROTOCOL"] == "http/protobuf"
        assert environment["OTEL_SERVICE_NAME"] == "service"
    else:
        assert environment == given


def test_name_in_the_resource_attributes_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_RESOURCE_ATTRIBUTES": "a=b,service.name=mine",
    }
    monkeypatch.setattr("os.environ", environment)
    assert are_traces_wanted("service")
    assert "OTEL_SERVICE_NAME" not in environment


def test_sdk_reads_its_own_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "OTEL_TRACES_EXPORTER": "console,otlp",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": "0.25",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
        "OTEL_SERVICE_NAME": "mine",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", None)
    monkeypatch.setattr(
        "opentelemetry.trace.set_tracer_provider",
        lambda made: monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", made),
    )
    tracing = start_tracing()
    assert tracing is not None
    provider = trace.get_tracer_provider()
    assert isinstance(provider, TracerProvider)
    assert "TraceIdRatioBased{0.25}" in provider.sampler.get_description()
    assert provider.resource.attributes["service.name"] == "mine"
    assert provider.resource.attributes["deployment.environment.name"] == "test"
    assert len(provider._active_span_processor._span_processors) == 2
    again = start_tracing()  # what is there is used
    assert again is not None
    assert trace.get_tracer_provider() is provider
    assert tracing.close(20)


@pytest.mark.usefixtures("_restored_logging")
def test_log_line_from_within_a_span_carries_its_ids(spans: InMemorySpanExporter) -> None:
    stream = io.StringIO()
    configure_logging("info", "json", stream=stream)
    with processing(HEADERS, topic="orders", as_child=True):
        structlog.get_logger("bridge.test").info("handled", trace_id="given")
        logging.getLogger("handler").warning("from elsewhere")
    logging.getLogger("handler").warning("outside")
    given, within, outside = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert given["trace_id"] == "given"
    assert within["trace_id"] == TRACE
    context = only(spans).context
    assert context is not None
    assert within["span_id"] == f"{context.span_id:016x}"
    assert "trace_id" not in outside


def test_complaints_of_telemetry_come_once_a_minute_each() -> None:
    now = 0.0
    calm = CalmTelemetry(60.0, lambda: now)

    def passes(name: str, text: str, *values: object) -> bool:
        return calm.filter(logging.LogRecord(name, logging.WARNING, "", 0, text, values, None))

    exporter = "opentelemetry.exporter.otlp"
    assert passes(exporter, "retrying in %s", 1)
    assert not passes(exporter, "retrying in %s", 2)
    assert passes(exporter, "failed")
    assert all(passes("bridge.relay", "not delivered") for _ in range(3))
    now = 61.0
    assert passes(exporter, "retrying in %s", 3)


@pytest.mark.parametrize(
    ("traceparent", "expected"),
    [
        (f"00-{TRACE}-{SPAN}-01", TRACE),
        (f"01-{TRACE}-{SPAN}-00-more", TRACE),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        ("00-ab", None),
        ("", None),
        (None, None),
    ],
)
def test_trace_id_is_read_from_a_traceparent(traceparent: str | None, expected: str) -> None:
    assert trace_id_of(traceparent) == expected


def test_names_are_those_of_the_semantic_conventions() -> None:
    ours = {
        name: value
        for name, value in vars(names).items()
        if name.startswith("MESSAGING_") and isinstance(value, str)
    }
    assert len(ours) == 11
    for name, value in ours.items():
        assert getattr(messaging_attributes, name) == value
    assert names.ERROR_TYPE == error_attributes.ERROR_TYPE
    assert Schemas.V1_44_0.value == names.SCHEMA_URL
    kafka = messaging_attributes.MessagingSystemValues.KAFKA
    assert kafka.value == names.KAFKA
