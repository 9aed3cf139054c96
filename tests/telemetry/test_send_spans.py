"""What a relay makes spans of, and what it leaves alone."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer

from bridge.telemetry import names
from tests.fixtures.kafka import silent
from tests.fixtures.otlp import ROOT
from tests.fixtures.postgres import on_one_server
from tests.fixtures.relays import RANDOM_TEXT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.cli import RunCliFunction
    from tests.fixtures.kafka import ConsumeFunction, KafkaBroker, NewTopicFunction
    from tests.fixtures.otlp import Collector
    from tests.fixtures.relays import Outbox, RunRelayFunction, StartRelayFunction


pytestmark = on_one_server


def traceparent(number: int, *, sampled: bool = True) -> str:
    return f"00-{number:032x}-{number:016x}-{'01' if sampled else '00'}"


def add(outbox: Outbox, topic: str, parent: str, key: str = "", **more: str) -> int:
    """Commit one row with a trace context; returns its id."""
    row = outbox.query(
        "insert into app_outbox (message_key, event_type, destination, payload_json, headers) "
        "values (%s, 'order.created', %s, '{}', %s) returning outbox_id",
        key or parent,
        topic,
        json.dumps({"traceparent": parent, **more}),
    )
    return int(row[0][0])


def raw_headers(kafka: KafkaBroker, topic: str, count: int) -> list[list[tuple[str, bytes]]]:
    """Return the headers of a topic's records as they stand there, repeated names included."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": f"raw-{topic}",
            "auto.offset.reset": "earliest",
        },
        logger=silent,
    )
    found: list[Any] = []
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 60
        while len(found) < count and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                found.append(message.headers())
    finally:
        consumer.close()
    assert len(found) == count
    return found


@pytest.fixture
def topic(new_topic: NewTopicFunction) -> str:
    return new_topic("orders")


def test_send_span_links_sampled_messages_and_tells_their_wait(
    outbox: Outbox, run_relay: RunRelayFunction, topic: str, collector: Collector
) -> None:
    for number in range(1, 4):
        add(outbox, topic, traceparent(number))
    for number in range(4, 7):
        add(outbox, topic, traceparent(number, sampled=False))
    # Long: what is there at the end is sent at the end.
    run_relay(env=collector.env(OTEL_BSP_SCHEDULE_DELAY="60000"))
    (span,) = collector.spans()
    assert (span.name, span.kind, span.service) == (
        f"send {topic}",
        "CLIENT",
        "outbox-bridge-relay",
    )
    assert (span.scope, span.schema_url) == (names.SCOPE, names.SCHEMA_URL)
    assert span.linked == [(f"{number:032x}", f"{number:016x}") for number in range(1, 4)]
    # Its parent is the first of them, so that a sampler that follows its parent keeps the span.
    assert (span.trace_id, span.parent_id) == (f"{1:032x}", f"{1:016x}")
    waits = [link["attributes"][names.OUTBOX_WAIT] for link in span.links]
    assert all(0 < wait < 600 for wait in waits)
    assert span.attributes[names.OUTBOX_LONGEST_WAIT] == max(waits)
    expected = {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": topic,
        "messaging.batch.message_count": 3,
        names.OUTBOX_CLAIM_ROWS: 6,
    }
    assert span.attributes.items() >= expected.items()
    assert span.start <= span.end <= time.time_ns()
    assert span.status == 0


def test_more_messages_than_a_span_may_link_to_are_covered_and_counted(
    outbox: Outbox, run_relay: RunRelayFunction, topic: str, collector: Collector
) -> None:
    outbox.execute(
        "insert into app_outbox (message_key, event_type, destination, payload_json, headers) "
        "select 'k' || n, 'e', %s, '{}', jsonb_build_object('traceparent', "
        "'00-' || lpad(to_hex(n), 32, '0') || '-' || lpad(to_hex(n), 16, '0') || '-01') "
        "from generate_series(1, 300) as n",
        topic,
    )
    report = run_relay(env=collector.env())
    assert report["sent"] == 300
    claims = [(span.attributes[names.OUTBOX_CLAIM_ROWS], span) for span in collector.spans()]
    assert sum(rows for rows, _ in claims) == 300
    for rows, span in claims:
        assert len(span.links) == min(rows, 128)
        assert span.attributes.get(names.OUTBOX_UNLINKED, 0) == max(0, rows - 128)
        assert span.attributes[names.MESSAGING_BATCH_MESSAGE_COUNT] == rows
    assert max(rows for rows, _ in claims) > 128


def test_sampler_of_the_relay_keeps_what_was_sampled_before(
    outbox: Outbox, run_relay: RunRelayFunction, topic: str, collector: Collector
) -> None:
    add(outbox, topic, traceparent(1))
    outbox.add(20, topic)
    run_relay(
        env=collector.env(
            OTEL_TRACES_SAMPLER="parentbased_traceidratio", OTEL_TRACES_SAMPLER_ARG="0"
        )
    )
    (span,) = collector.wait_for(1)
    assert span.linked == [(f"{1:032x}", f"{1:016x}")]
    assert span.attributes[names.OUTBOX_MESSAGE_KEY] == traceparent(1)
    assert names.MESSAGING_BATCH_MESSAGE_COUNT not in span.attributes


def test_row_without_context_gets_a_create_span_from_its_insert_on(
    outbox: Outbox,
    run_relay: RunRelayFunction,
    consume: ConsumeFunction,
    topic: str,
    collector: Collector,
) -> None:
    (outbox_id,) = outbox.add(1, topic, created_at="2026-01-02T03:04:05Z")
    run_relay(env=collector.env())
    create, send = collector.wait_for(2)
    assert (create.name, create.kind) == (f"create {topic}", "PRODUCER")
    assert create.start == create.end == 1_767_323_045 * 10**9
    assert create.parent_id is None
    expected = {
        names.OUTBOX_ID: outbox_id,
        names.OUTBOX_MESSAGE_KEY: "m-1",
        "messaging.destination.name": topic,
    }
    assert create.attributes.items() >= expected.items()
    assert send.linked == [create.context]
    assert send.links[0]["attributes"][names.OUTBOX_WAIT] == pytest.approx(
        (send.start - create.start) / 1e9
    )
    (record,) = consume(topic)
    assert record.headers["traceparent"] == f"00-{create.trace_id}-{create.span_id}-03" or (
        record.headers["traceparent"] == f"00-{create.trace_id}-{create.span_id}-01"
    )


def test_unsampled_row_without_context_still_carries_one(
    outbox: Outbox,
    run_relay: RunRelayFunction,
    consume: ConsumeFunction,
    topic: str,
    collector: Collector,
) -> None:
    outbox.add(3, topic)
    run_relay(env=collector.env(OTEL_TRACES_SAMPLER="always_off"))
    parents = [record.headers["traceparent"] for record in consume(topic)]
    assert len(set(parents)) == 3
    assert all(int(parent[-2:], 16) % 2 == 0 for parent in parents)
    assert collector.spans() == []


def test_refused_message_fails_its_span_and_its_log_line_names_the_trace(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    run_cli: RunCliFunction,
    new_topic: NewTopicFunction,
    collector: Collector,
) -> None:
    topic = new_topic("small", config={"max.message.bytes": "2000"})
    add(outbox, topic, traceparent(7), "good")
    large = outbox.value(
        "insert into app_outbox (message_key, event_type, destination, payload_json, headers) "
        "select 'large', 'e', %s, to_json(string_agg(md5(n::text), '')), "
        "jsonb_build_object('traceparent', %s::text) from generate_series(1, 200) as n "
        "returning outbox_id",
        topic,
        traceparent(8),
    )
    relay = start_relay(
        "--until-empty", wait=False, env=collector.env(), kafka_compression_type="none"
    )
    assert relay.process.wait(60) == 0
    outbox.wait_for("FAILED", [large])
    failed = [span for span in collector.spans("send") if span.status]
    assert failed[-1].linked == [(f"{8:032x}", f"{8:016x}")]
    assert failed[-1].attributes["error.type"] == "MSG_SIZE_TOO_LARGE"
    line = relay.events("not delivered")[-1]
    assert (line["outbox_id"], line["message_key"]) == (large, "large")
    assert line["trace_id"] == f"{8:032x}"
    shown = run_cli("show", str(large)).stdout
    assert f"{8:032x}" in shown.split("header")[0]


def test_large_payload_and_dead_letter_have_spans_of_their_own(
    outbox: Outbox,
    run_relay: RunRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
    collector: Collector,
) -> None:
    topic, dead = new_topic("orders", config={"max.message.bytes": "200000"}), new_topic("dead")
    # The first is fetched apart from its claim; the second is over the topic's limit.
    for number, size in ((1, 100_000), (2, 400_000)):
        outbox.execute(
            "insert into app_outbox (message_key, event_type, destination, payload_json, headers) "
            f"select %s, 'e', %s, ({RANDOM_TEXT})::json, %s",
            f"k{number}",
            topic,
            size,
            json.dumps({"traceparent": traceparent(number)}),
        )
    routes = [{"destination": topic, "dead_letter": dead}]
    report = run_relay(
        env=collector.env(), routes=json.dumps(routes), relay_inline_payload_bytes=8192
    )
    assert (report["sent"], report["failed"]) == (1, 1)
    (letter,) = consume(dead)
    assert letter.headers["traceparent"] == traceparent(2)
    ended = {(span.linked[0][0], span.name): span.status for span in collector.spans("send")}
    assert ended[f"{1:032x}", f"send {topic}"] == 0
    assert ended[f"{2:032x}", f"send {topic}"] == 2  # STATUS_CODE_ERROR
    assert ended[f"{2:032x}", f"send {dead}"] == 0


@pytest.mark.parametrize("instrumented", [False, True], ids=["plain", "instrumented"])
def test_context_of_the_row_reaches_kafka_untouched_and_once(
    outbox: Outbox,
    cli_env: dict[str, str],
    kafka: KafkaBroker,
    topic: str,
    collector: Collector,
    *,
    instrumented: bool,
) -> None:
    given = {"tracestate": "vendor=a:1,other=2", "baggage": "tenant=a%20b,user=7;private"}
    add(outbox, topic, traceparent(1), "sampled", **given)
    add(outbox, topic, traceparent(2, sampled=False), "unsampled", **given)
    add(outbox, topic, "no traceparent at all", "broken", **given)
    add(outbox, topic, "", "empty", **given)
    outbox.add(1, topic, prefix="none")
    module = "tests.telemetry.instrumented_relay" if instrumented else "bridge"
    done = subprocess.run(
        [sys.executable, "-m", module, "relay", "--until-empty"],
        env=cli_env | collector.env(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = {dict(pairs)["idempotency-key"]: pairs for pairs in raw_headers(kafka, topic, 5)}
    contexts = {
        key.decode(): {
            name: [value.decode() for other, value in pairs if other == name]
            for name in ("traceparent", *given)
        }
        for key, pairs in found.items()
    }
    kept = {name: [value] for name, value in given.items()}
    assert contexts.pop("none-1").keys() == {"traceparent", *given}
    assert contexts == {
        "sampled": {"traceparent": [traceparent(1)], **kept},
        "unsampled": {"traceparent": [traceparent(2, sampled=False)], **kept},
        "broken": {"traceparent": ["no traceparent at all"], **kept},
        "empty": {"traceparent": [""], **kept},
    }
    (only,) = [value for name, value in found[b"none-1"] if name == "traceparent"]
    spans = collector.wait_for(2)
    # Nothing of the instrumentations': neither a span for each record, nor for each statement.
    assert sorted(span.name for span in spans) == [f"create {topic}", f"send {topic}"]
    assert only.decode().split("-")[1] == spans[0].trace_id
    send = collector.spans("send")[0]
    assert (f"{1:032x}", f"{1:016x}") in send.linked


@pytest.fixture
def deaf_endpoint() -> Iterator[str]:
    """An address that takes connections and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(50)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("kind", ["refusing", "deaf"])
def test_receiver_that_is_down_neither_holds_the_relay_up_nor_floods_its_log(
    kind: str,
    outbox: Outbox,
    start_relay: StartRelayFunction,
    topic: str,
    deaf_endpoint: str,
) -> None:
    given = {"OTEL_EXPORTER_OTLP_ENDPOINT": deaf_endpoint}
    if kind == "refusing":  # and is given up at once, so that each span has its own complaint
        given = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "0.5",
        }
    ids = [add(outbox, topic, traceparent(n)) for n in range(1, 4)]
    relay = start_relay(
        # Held up until then it would not end while the test waits for it.
        relay_drain_timeout=600,
        env={
            **given,
            "OTEL_BSP_SCHEDULE_DELAY": "10",
            "OTEL_BSP_MAX_QUEUE_SIZE": "4",
            "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "1",
        },
    )
    outbox.wait_for("SENT", ids)
    for n in range(4, 60):
        ids.append(add(outbox, topic, traceparent(n)))
        if n % 10 == 0:
            outbox.wait_for("SENT", ids)
    outbox.wait_for("SENT", ids)
    report = relay.stop()
    assert report["forced"] is False
    assert report["sent"] == len(ids)
    complaints = [line for line in relay.log if line["level"] in {"warning", "error"}]
    assert 1 <= len(complaints) <= 6, complaints


def test_relay_goes_on_without_traces_where_they_cannot_be_set_up(
    outbox: Outbox, start_relay: StartRelayFunction, topic: str
) -> None:
    (outbox_id,) = outbox.add(1, topic)
    relay = start_relay(env={"OTEL_TRACES_EXPORTER": "nonesuch"})
    assert "nonesuch" in relay.wait_for_event("traces are off")["reason"]
    outbox.wait_for("SENT", [outbox_id])
    relay.stop()
