"""Records that a real relay writes to a real Kafka honour the contracts, whatever the row is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import bridge
from bridge.demo.shop.events import ORDER_PLACED, PAYMENT_CAPTURED, OrderPlaced, PaymentCaptured
from bridge.lifecycle import Status
from bridge.operations import Actor, Selection, replay
from tests.contracts.documents import problems
from tests.fixtures.postgres import on_one_server
from tests.fixtures.relays import RANDOM_TEXT

if TYPE_CHECKING:
    from tests.fixtures.kafka import ConsumeFunction, NewTopicFunction
    from tests.fixtures.relays import Outbox, RunRelayFunction

# The encoding does not depend on PostgreSQL's version.
pytestmark = on_one_server

_TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def enqueue(outbox: Outbox, **message: Any) -> None:
    with psycopg.connect(outbox.url) as conn:
        bridge.enqueue(conn, **message)


def test_records_of_every_kind_have_the_headers_that_the_contract_says(
    outbox: Outbox,
    run_relay: RunRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
) -> None:
    topic = new_topic()
    common = {"event_type": "thing.happened", "destination": topic}
    enqueue(outbox, message_key="json", payload={"a": 1}, **common)
    enqueue(outbox, message_key="ä" * 200, payload=[], ordering_key="k" * 200, **common)
    enqueue(outbox, message_key="tombstone", payload=None, **common)
    enqueue(outbox, message_key="bytes", payload=b"\x00", content_type="application/avro", **common)
    enqueue(
        outbox,
        message_key="traced",
        payload={},
        headers={"traceparent": _TRACEPARENT, "tracestate": "a=b", "baggage": "c=d", "own": "✓"},
        **common,
    )
    outbox.add(1, topic, prefix="by-sql", headers='{"traceparent": "not one"}')

    run_relay()
    with psycopg.connect(outbox.url) as conn:
        chosen = Selection(destination=topic, statuses=(Status.SENT,))
        actor = Actor("tests", source="test")
        again = replay(conn, chosen, reason="see the header", actor=actor, rows_per_second=1000)
    assert again.changed == 6
    run_relay()

    records = consume(topic)
    assert len(records) == 12
    for record in records:
        assert problems(record, "outbox") == []
    replayed = [record.headers.get("outbox-replay-id") for record in records]
    assert (replayed.count(None), replayed.count(again.replay_id)) == (6, 6)


def test_a_dead_letter_has_the_headers_that_the_contract_says(
    outbox: Outbox,
    run_relay: RunRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
    *,
    uses_real_kafka: bool,
) -> None:
    if not uses_real_kafka:
        pytest.skip("the mock broker refuses no record for its size")
    small = new_topic("small", config={"max.message.bytes": "1000"})
    letters = new_topic("letters")
    payload = outbox.value(RANDOM_TEXT, 4000)
    outbox.add(1, small, payload_json=payload, headers='{"own": "kept"}')

    run_relay(routes=json.dumps([{"destination": small, "dead_letter": letters}]))

    (letter,) = consume(letters)
    assert problems(letter, "deadLetters") == []
    assert letter.headers["dead-letter-topic"] == small
    assert problems(letter, "outbox") == [], "it is a record like any other, with more headers"


def test_the_shops_events_honour_the_contract_and_others_do_not(
    outbox: Outbox,
    run_relay: RunRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
) -> None:
    orders, payments = new_topic("orders"), new_topic("payments")
    placed = OrderPlaced(
        order_id="o-1", customer="Ada", item="tea", quantity=1, amount_cents=490, currency="EUR"
    )
    captured = PaymentCaptured(
        order_id="o-1", charge_id="ch-1", customer="Ada", amount_cents=490, currency="EUR"
    )
    enqueue(
        outbox,
        message_key=placed.message_key,
        event_type=ORDER_PLACED,
        destination=orders,
        ordering_key=placed.order_id,
        payload=placed,
    )
    enqueue(
        outbox,
        message_key=captured.message_key,
        event_type=PAYMENT_CAPTURED,
        destination=payments,
        payload=captured,
    )
    enqueue(
        outbox,
        message_key="careless",
        event_type=ORDER_PLACED,
        destination=orders,
        payload={**placed.model_dump(), "amount_cents": 4.9},
    )
    enqueue(outbox, message_key="unknown", event_type="order.lost", destination=orders, payload={})

    run_relay()

    found = {r.headers["idempotency-key"]: r for r in [*consume(orders), *consume(payments)]}
    assert problems(found["order-o-1-placed"], "orders") == []
    assert problems(found["order-o-1-paid"], "payments") == []
    assert problems(found["careless"], "orders") == ["4.9 is not of type 'integer'"]
    assert problems(found["unknown"], "orders") == ["orders has no message 'order.lost'"]
