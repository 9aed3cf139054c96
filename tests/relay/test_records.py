"""What stands in the topic: route, key, partition, value, headers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from aiokafka.partitioner import DefaultPartitioner

from tests.fixtures.postgres import on_one_server
from tests.fixtures.relays import assert_places_hold

if TYPE_CHECKING:
    from tests.fixtures.kafka import ConsumeFunction, KafkaBroker, NewTopicFunction, ReceivedRecord
    from tests.fixtures.relays import Outbox, RunRelayFunction

# Slow to repeat, and the encoding does not depend on PostgreSQL's version.
pytestmark = on_one_server


def by_key(records: list[ReceivedRecord]) -> dict[str, ReceivedRecord]:
    return {record.headers["idempotency-key"]: record for record in records}


def test_routes_choose_topic_and_key_and_the_row_says_where_it_went(
    outbox: Outbox,
    run_relay: RunRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
) -> None:
    exact, pattern, plain = new_topic("exact"), new_topic("pattern"), new_topic("plain")
    routes = [
        {"destination": "shop.*", "topic": pattern, "key": "message_key"},
        {"destination": "shop.orders", "topic": exact},
        {"destination": "*.orders", "topic": plain},
        {"destination": plain, "key": "ordering_key"},
    ]
    (one,) = outbox.add(1, "shop.orders", prefix="exact", ordering_key="k")
    (two,) = outbox.add(1, "shop.returns", prefix="pattern", ordering_key="k")
    (three,) = outbox.add(1, plain, prefix="plain", ordering_key="k")
    (four,) = outbox.add(1, plain, prefix="keyless")

    run_relay(routes=json.dumps(routes))

    rows = {row.outbox_id: row for row in outbox.rows()}
    assert (rows[one].sent_topic, rows[two].sent_topic) == (exact, pattern)
    assert (rows[three].sent_topic, rows[four].sent_topic) == (None, None)
    records = by_key([*consume(exact), *consume(pattern), *consume(plain)])
    assert {key: record.key for key, record in records.items()} == {
        "exact-1": b"k",
        "pattern-1": b"pattern-1",
        "plain-1": b"k",
        "keyless-1": None,
    }
    for row in rows.values():
        record = records[row.message_key]
        assert row.place == (record.topic, record.partition, record.offset)


def test_key_picks_the_partition_that_aiokafka_picks(
    outbox: Outbox,
    run_relay: RunRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
    kafka: KafkaBroker,
) -> None:
    topic = new_topic(partitions=7)
    outbox.add(200, topic, prefix="schlüssel-日本")
    outbox.add(1, topic, prefix="o", ordering_key="k" * 200)

    run_relay()

    records = consume(topic)
    # The mock cluster gives each topic 4 partitions.
    everything = list(range(7 if kafka.is_real else 4))
    partitioner = DefaultPartitioner()
    assert len(records) == 201
    for record in records:
        assert record.key is not None
        assert record.partition == partitioner(record.key, everything, everything)
    assert_places_hold(outbox.rows(), records)


PAYLOADS = {
    "spaces": '{"b" :1,  "a":[1.0,1e3],"b":2}',
    "unicode": '{"name":"Zo\\u00eb ✓ 😀"}',
    "text": '"just text"',
    "null": "null",
    "big number": "123456789012345678901234567890.1234567890",
}


def test_json_payloads_arrive_byte_for_byte(
    outbox: Outbox,
    run_relay: RunRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
) -> None:
    topic = new_topic()
    for name, text in PAYLOADS.items():
        outbox.add(1, topic, prefix=name, payload_json=text)

    run_relay()

    records = by_key(consume(topic))
    for name, text in PAYLOADS.items():
        record = records[f"{name}-1"]
        assert record.value == text.encode()
        assert record.headers["content-type"] == "application/json"


@pytest.mark.parametrize("inline", [65536, 1], ids=["with the claim", "one by one"])
def test_bytes_tombstones_and_headers_arrive_as_they_are(
    outbox: Outbox,
    run_relay: RunRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
    inline: int,
) -> None:
    topic = new_topic()
    raw = bytes(range(256)) * 20
    outbox.add(1, topic, prefix="avro", payload_bytes=raw, content_type="application/avro")
    outbox.add(1, topic, prefix="bare", payload_bytes=raw)
    outbox.add(1, topic, prefix="empty", payload_bytes=b"", content_type="text/plain")
    outbox.add(1, topic, prefix="tombstone", payload_json=None)
    outbox.add(
        1,
        topic,
        prefix="headers",
        payload_json='"' + "x" * 5000 + '"',
        headers='{"traceparent": "00-ab", "name": "Zoë ✓", "empty": ""}',
    )

    run_relay(relay_inline_payload_bytes=inline)

    records = by_key(consume(topic))
    assert records["avro-1"].value == records["bare-1"].value == raw
    assert records["avro-1"].headers["content-type"] == "application/avro"
    assert records["empty-1"].value == b""
    assert records["empty-1"].headers["content-type"] == "text/plain"
    assert records["tombstone-1"].value is None
    rows = {row.message_key: row for row in outbox.rows()}
    assert records["headers-1"].headers == {
        "outbox-id": str(rows["headers-1"].outbox_id),
        "event-type": "order.created",
        "idempotency-key": "headers-1",
        "content-type": "application/json",
        "outbox-attempt": "1",
        "traceparent": "00-ab",
        "name": "Zoë ✓",
        "empty": "",
    }
    assert_places_hold(rows.values(), records.values())
