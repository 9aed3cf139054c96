"""One order through every hop: writer, relay, two consumers, an HTTP call; each its own process."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from bridge.telemetry import names
from tests.fixtures.otlp import ROOT
from tests.fixtures.postgres import on_one_server
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.kafka import ConsumeFunction, KafkaBroker, NewTopicFunction
    from tests.fixtures.otlp import Collector, ReceivedSpan
    from tests.fixtures.relays import Outbox, RunRelayFunction


@on_one_server
def test_one_order_is_one_tree_from_the_business_transaction_to_the_http_call(
    *,
    outbox: Outbox,
    database_url: str,
    kafka: KafkaBroker,
    new_topic: NewTopicFunction,
    run_relay: RunRelayFunction,
    consume: ConsumeFunction,
    collector: Collector,
    cli_env: dict[str, str],
    tmp_path: Path,
) -> None:
    topic = new_topic("orders")
    given = {
        "ACTOR_DATABASE": database_url,
        "ACTOR_TOPIC": topic,
        "ACTOR_BROKERS": kafka.bootstrap_servers,
    }
    started: list[subprocess.Popen[bytes]] = []

    def start(actor: str, **more: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.telemetry.actors", actor],
            cwd=ROOT,
            env=cli_env | collector.env(actor) | given | more,
        )
        started.append(process)
        return process

    try:
        port_file = tmp_path / "port"
        api = start("api", ACTOR_PORT_FILE=str(port_file))
        assert start("writer").wait(60) == 0
        run_relay(env=collector.env("relay"))
        wait_until(lambda: port_file.exists() and port_file.read_text().strip(), "the API listens")
        url = f"http://127.0.0.1:{port_file.read_text().strip()}/charges"
        payments = start("payments", ACTOR_API=url)
        notifications = start("notifications")
        for process in (payments, notifications, api):
            assert process.wait(60) == 0
    finally:
        for process in started:
            process.kill()
            process.wait()

    spans = {(span.service, span.name): span for span in collector.wait_for(7)}
    assert len(collector.spans()) == len(spans) == 7
    business = spans["writer", "POST /orders"]
    create = spans["writer", f"create {topic}"]
    send = spans["relay", f"send {topic}"]
    paying = spans["payments", f"process {topic}"]
    calling = spans["payments", "POST /charges"]
    charging = spans["api", "charge"]
    notifying = spans["notifications", f"process {topic}"]

    # The tree: all of it but the consumer that asked to be linked only.
    tree = [business, create, send, paying, calling, charging]
    assert {span.trace_id for span in tree} == {business.trace_id}
    parents = {
        span.name: _name_of(span.parent_id, [*tree, notifying]) for span in [*tree, notifying]
    }
    assert parents == {
        "POST /orders": None,
        f"create {topic}": "POST /orders",
        f"send {topic}": f"create {topic}",
        f"process {topic}": None,  # notifications, the last one
        "POST /charges": f"process {topic}",
        "charge": "POST /charges",
    }
    assert paying.parent_id == create.span_id
    assert notifying.trace_id != business.trace_id
    assert send.linked == paying.linked == notifying.linked == [create.context]
    assert [span.kind for span in (create, send, paying, calling, charging, notifying)] == [
        *("PRODUCER", "CLIENT", "CONSUMER", "CLIENT", "SERVER", "CONSUMER")
    ]

    # Every hop tells which message it was, and what it waited.
    (row,) = outbox.rows()
    for span in (create, send, paying, notifying):
        assert span.attributes[names.OUTBOX_ID] == row.outbox_id
        assert span.attributes[names.OUTBOX_MESSAGE_KEY] == "order-1"
        assert span.schema_url == names.SCHEMA_URL
    assert send.attributes[names.OUTBOX_LONGEST_WAIT] > 0
    for span, group in ((paying, "payments"), (notifying, "notifications")):
        expected = {
            "messaging.system": "kafka",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": topic,
            "messaging.destination.partition.id": str(row.sent_partition),
            "messaging.kafka.offset": row.sent_offset,
            "messaging.kafka.message.key": "order-1",
            "messaging.consumer.group.name": group,
            "shop.tenant": "a b",
            names.OUTBOX_EVENT_TYPE: "order.created",
            names.OUTBOX_ATTEMPT: 1,
        }
        assert span.attributes.items() >= expected.items()
        assert span.attributes[names.OUTBOX_TRANSIT] >= 0
    (record,) = consume(topic)
    assert record.headers["traceparent"].split("-")[1:3] == list(create.context)


def _name_of(span_id: str | None, spans: list[ReceivedSpan]) -> str | None:
    return next((span.name for span in spans if span.span_id == span_id), None)
