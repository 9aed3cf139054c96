"""What the publisher tells of its records, and the spans that come of it; without servers."""

from __future__ import annotations

import struct
import threading
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import context, propagate, trace
from opentelemetry.propagators.textmap import TextMapPropagator, default_getter, default_setter
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from bridge.message import ClaimedRow
from bridge.telemetry import names, sending
from bridge.telemetry.sending import SendSpans, send_spans
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.encoding.json import RecordHeaders

PARENT = f"00-{5:032x}-{6:016x}-01"
CREATED = struct.pack(">q", 700_000_000_000_000)


class KafkaError:
    """Stands in for the client's."""

    def name(self) -> str:
        return "_MSG_TIMED_OUT"


def row(outbox_id: int = 1, created_at: bytes | None = CREATED) -> ClaimedRow:
    key = f"k{outbox_id}"
    return ClaimedRow(
        *(outbox_id, "orders", key, None, "t", None, 1, None, b"{}", None, None, None, None),
        created_at=created_at,
    )


class Relay:
    def __init__(self) -> None:
        self.kept = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.kept))
        self.reports: list[Any] = []

    def start(self) -> SendSpans:
        spans = send_spans("r")
        assert spans is not None
        spans.start()
        return spans

    def report(self, error: Any, message: Any) -> None:
        self.reports.append((error, message))

    def spans(self, count: int) -> list[ReadableSpan]:
        wait_until(lambda: len(self.kept.get_finished_spans()) >= count, f"{count} spans")
        return list(self.kept.get_finished_spans())


@pytest.fixture
def relay(monkeypatch: pytest.MonkeyPatch) -> Relay:
    made = Relay()
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", made.provider)
    return made


@pytest.fixture
def spans(relay: Relay) -> Iterator[SendSpans]:
    started = relay.start()
    yield started
    started.finish(10)


def test_without_sdk_nothing_follows_the_records() -> None:
    assert send_spans("r") is None


def test_disabled_sdk_counts_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    provider = TracerProvider(shutdown_on_exit=False)
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", provider)
    assert send_spans("r") is None


def test_span_ends_with_the_last_report_and_not_before_the_claim_is_through(
    relay: Relay, spans: SendSpans, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[Any] = []
    monkeypatch.setattr(spans, "end", ended.append)
    with spans.follow("c", 2) as following:
        first = following.record(row(1), {"traceparent": PARENT}, "t", relay.report, may_grow=True)
        first(None, "message")
        second = following.record(row(2), {"traceparent": PARENT}, "t", relay.report, may_grow=True)
    assert ended == []  # the second record is still on its way
    error = KafkaError()
    second(error, None)
    monkeypatch.undo()
    spans.end(ended[0])
    (span,) = relay.spans(1)
    assert relay.reports == [(None, "message"), (error, None)]
    assert len(span.links) == 2
    assert span.status.status_code is trace.StatusCode.ERROR
    assert (span.attributes or {})[names.ERROR_TYPE] == "_MSG_TIMED_OUT"


def test_record_that_produce_itself_refuses_leaves_no_span_open(
    relay: Relay, spans: SendSpans
) -> None:
    with spans.follow("c", 1) as following:
        following.record(row(), {"traceparent": PARENT}, "t", relay.report, may_grow=True)
        following.refused(1, KafkaError())
        following.refused(1, KafkaError())  # counts once
    (span,) = relay.spans(1)
    assert (span.attributes or {})[names.ERROR_TYPE] == "_MSG_TIMED_OUT"


def test_span_covers_those_that_it_cannot_link_to(relay: Relay, spans: SendSpans) -> None:
    with spans.follow("c", 130) as following:
        reports = [
            following.record(row(n), {"traceparent": PARENT}, "t", relay.report, may_grow=True)
            for n in range(130)
        ]
    for report in reports[:-1]:
        report(None, None)
    assert relay.kept.get_finished_spans() == ()
    reports[-1](KafkaError(), None)
    (span,) = relay.spans(1)
    assert len(span.links) == 128
    assert span.attributes is not None
    assert span.attributes[names.OUTBOX_UNLINKED] == 2
    assert span.attributes[names.MESSAGING_BATCH_MESSAGE_COUNT] == 130
    assert span.attributes[names.ERROR_TYPE] == "_MSG_TIMED_OUT"


def test_each_topic_of_a_claim_has_its_span(relay: Relay, spans: SendSpans) -> None:
    with spans.follow("c", 2) as following:
        for topic in ("a", "b"):
            headers: RecordHeaders = {"traceparent": PARENT}
            following.record(row(), headers, topic, relay.report, may_grow=True)(None, None)
    assert {span.name for span in relay.spans(2)} == {"send a", "send b"}


@pytest.mark.parametrize("parent", ["1", "00-zz-1", f"00-{0:032x}-{6:016x}-01", "x" * 200 + "1"])
def test_what_is_no_traceparent_is_linked_to_by_nobody(
    parent: str, relay: Relay, spans: SendSpans
) -> None:
    with spans.follow("c", 2) as following:
        for one in (parent, PARENT):
            headers: RecordHeaders = {"traceparent": one}
            following.record(row(), headers, "t", relay.report, may_grow=True)(None, None)
            assert headers == {"traceparent": one}
    (span,) = relay.spans(1)
    assert [link.context.trace_id for link in span.links] == [5]


@pytest.mark.parametrize("created_at", [None, struct.pack(">q", 2**63 - 1)], ids=["none", "never"])
def test_row_whose_age_nobody_knows_is_linked_without_wait(
    created_at: bytes | None, relay: Relay, spans: SendSpans
) -> None:
    with spans.follow("c", 1) as following:
        following.record(
            row(created_at=created_at), {"traceparent": PARENT}, "t", relay.report, may_grow=True
        )(None, None)
    (span,) = relay.spans(1)
    assert dict(span.links[0].attributes or {}) == {}


def test_record_near_its_limit_does_not_grow(relay: Relay, spans: SendSpans) -> None:
    headers: RecordHeaders = {}
    with spans.follow("c", 1) as following:
        given = following.record(row(), headers, "t", relay.report, may_grow=False)
    assert headers == {}
    assert given == relay.report


def test_traceparent_in_another_case_is_not_doubled(relay: Relay, spans: SendSpans) -> None:
    headers: RecordHeaders = {"TraceParent": PARENT}
    with spans.follow("c", 1) as following:
        following.record(row(), headers, "t", relay.report, may_grow=True)(None, None)
    (span,) = relay.spans(1)
    assert headers == {"TraceParent": PARENT}
    assert span.links[0].context.trace_id == 5


class OneHeader(TextMapPropagator):
    """A format that is not W3C's: `x-trace: 7-8-1`."""

    def extract(
        self, carrier: Any, context: context.Context | None = None, getter: Any = default_getter
    ) -> context.Context:
        found = getter.get(carrier, "x-trace")
        ids = [int(part) for part in found[0].split("-")] if found else [0, 0, 0]
        made = trace.SpanContext(
            ids[0], ids[1], is_remote=True, trace_flags=trace.TraceFlags(ids[2])
        )
        return trace.set_span_in_context(trace.NonRecordingSpan(made), context)

    def inject(
        self, carrier: Any, context: context.Context | None = None, setter: Any = default_setter
    ) -> None:
        span = trace.get_current_span(context).get_span_context()
        setter.set(carrier, "x-trace", f"{span.trace_id}-{span.span_id}-{span.trace_flags & 1}")

    @property
    def fields(self) -> set[str]:
        return {"x-trace"}


def test_context_in_another_format_is_kept_and_linked(relay: Relay) -> None:
    before = propagate.get_global_textmap()
    propagate.set_global_textmap(OneHeader())
    try:
        spans = relay.start()
        brought: RecordHeaders = {"x-trace": "7-8-1"}
        unsampled: RecordHeaders = {"x-trace": "7-8-0"}
        nothing: RecordHeaders = {}
        with spans.follow("c", 3) as following:
            for headers in (brought, unsampled, nothing):
                following.record(row(), headers, "t", relay.report, may_grow=True)(None, None)
        spans.finish(10)
    finally:
        propagate.set_global_textmap(before)
    assert brought == {"x-trace": "7-8-1"}
    assert unsampled == {"x-trace": "7-8-0"}
    create, send = sorted(relay.spans(2), key=lambda span: span.name)
    assert create.context is not None
    assert nothing == {"x-trace": f"{create.context.trace_id}-{create.context.span_id}-1"}
    assert [link.context.trace_id for link in send.links] == [7, create.context.trace_id]


class Blocking(SpanProcessor):
    """A processor that takes its time."""

    def __init__(self) -> None:
        self.release = threading.Event()

    def on_end(self, span: ReadableSpan) -> None:
        del span
        self.release.wait(120)


def test_slow_processor_holds_up_nobody_and_memory_stays_bounded(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocking = Blocking()
    relay.provider.add_span_processor(blocking)
    monkeypatch.setattr(sending, "_MOST_WAITING", 3)
    spans = relay.start()
    for number in range(20):
        with spans.follow(str(number), 1) as following:
            headers: RecordHeaders = {"traceparent": PARENT}
            following.record(row(), headers, "t", relay.report, may_grow=True)(None, None)
    assert len(relay.reports) == 20
    spans.finish(0.01)  # does not wait for it
    blocking.release.set()
    spans.finish(60)  # does
    assert 1 <= len(relay.kept.get_finished_spans()) <= 5


def test_broken_sampler_lets_the_record_go(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError

    spans = relay.start()
    monkeypatch.setattr(spans._tracer, "start_span", broken)
    headers: RecordHeaders = {}
    with spans.follow("c", 2) as following:
        assert following.record(row(), headers, "t", relay.report, may_grow=True) == relay.report
        kept: RecordHeaders = {"traceparent": PARENT}
        following.record(row(), kept, "t", relay.report, may_grow=True)(None, None)
    spans.finish(10)
    assert headers == {}
    assert relay.kept.get_finished_spans() == ()
