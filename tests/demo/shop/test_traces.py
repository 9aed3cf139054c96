"""One order's spans become a tree, and the receiver takes in what a real exporter sends."""

from __future__ import annotations

import gzip

import httpx
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from bridge.demo.shop.trace_collector import TraceCollector
from bridge.demo.shop.trace_tree import Span, draw, duration_ns, grow, names

_MS = 1_000_000


def span(
    number: int,
    name: str,
    *,
    parent: int | None = None,
    start: int = 0,
    in_trace: str = "t",
    links: tuple[tuple[str, int], ...] = (),
    failed: bool = False,
) -> Span:
    return Span(
        trace_id=in_trace,
        span_id=str(number),
        parent_id=None if parent is None else str(parent),
        name=name,
        service="shop" if name.startswith("POST") else "relay",
        start_ns=start * _MS,
        end_ns=(start + 5) * _MS,
        links=tuple((trace_id, str(linked)) for trace_id, linked in links),
        failed=failed,
    )


def test_children_stand_below_their_parents_and_links_below_what_they_lead_to() -> None:
    spans = [
        # Another trace's batch, which sent a message of ours among others.
        span(7, "send orders", start=20, in_trace="u", links=(("x", 1), ("t", 2), ("t", 9))),
        span(3, "process orders", parent=2, start=30, failed=True),
        span(2, "create orders", parent=1, start=10),
        span(1, "POST /orders"),
        span(8, "below the batch", parent=7, start=21, in_trace="u"),
        span(1, "POST /orders of somebody else", in_trace="x"),
    ]
    roots = grow(spans, "t")
    assert names(roots) == [
        "POST /orders",
        "create orders",
        "send orders",
        "below the batch",
        "process orders",
    ]
    assert [" ".join(line.split()) for line in draw(roots)] == [
        "POST /orders shop 0.0 ms took 5.0 ms",
        "└─ create orders relay 10.0 ms took 5.0 ms",
        "├─ send orders (linked) relay 20.0 ms took 5.0 ms",
        "│ └─ below the batch relay 21.0 ms took 5.0 ms",
        "└─ process orders FAILED relay 30.0 ms took 5.0 ms",
    ]
    assert duration_ns(roots) == 35 * _MS


def test_a_consumer_with_a_trace_of_its_own_is_followed_by_its_link() -> None:
    spans = [
        span(1, "create orders"),
        span(5, "process orders", start=9, in_trace="v", links=(("t", 1),)),
        span(6, "create payments", parent=5, start=10, in_trace="v"),
        span(7, "send payments", start=11, in_trace="w", links=(("v", 6),)),
    ]
    assert names(grow(spans, "t")) == [
        "create orders",
        "process orders",
        "create payments",
        "send payments",
    ]


def test_a_span_whose_parent_was_never_reported_is_a_root() -> None:
    roots = grow([span(2, "create orders", parent=1), span(4, "process orders", parent=3)], "t")
    assert [root.span.name for root in roots] == ["create orders", "process orders"]
    assert grow([], "t") == []
    assert draw([]) == []
    assert duration_ns([]) == 0


def test_the_receiver_understands_a_real_exporter() -> None:
    with TraceCollector() as collector:
        provider = TracerProvider(resource=Resource.create({"service.name": "order-service"}))
        exporter = OTLPSpanExporter(endpoint=f"{collector.endpoint}/v1/traces")
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        tracer = provider.get_tracer("test")
        with tracer.start_as_current_span("outer") as outer:
            context = outer.get_span_context()
            link = trace.Link(context)
            tracer.start_span("inner", links=[link]).end()
        provider.shutdown()
        spans = {one.name: one for one in collector.spans()}
    assert set(spans) == {"outer", "inner"}
    assert spans["outer"].service == "order-service"
    assert spans["outer"].trace_id == trace.format_trace_id(context.trace_id)
    assert spans["outer"].parent_id is None
    assert spans["inner"].parent_id == spans["outer"].span_id
    assert spans["inner"].links == ((spans["outer"].trace_id, spans["outer"].span_id),)
    assert spans["outer"].start_ns <= spans["inner"].start_ns <= spans["outer"].end_ns


def test_the_receiver_refuses_what_is_no_export() -> None:
    with TraceCollector() as collector, httpx.Client(trust_env=False) as client:
        url = f"{collector.endpoint}/v1/traces"
        zipped = {"Content-Encoding": "gzip"}
        assert client.post(url, content=b"\xff\xff").status_code == 400
        assert client.post(url, content=gzip.compress(b""), headers=zipped).status_code == 200
        assert client.post(f"{collector.endpoint}/v1/metrics", content=b"").status_code == 404
        assert collector.spans() == []
