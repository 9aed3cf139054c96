"""What cannot be handled: to the dead-letter topic with its reason, or held where there is none."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from bridge.consumer import RejectError, RetryPolicy
from tests.consumer.conftest import Sent, committed, running, settled, until

if TYPE_CHECKING:
    import pytest

    from tests.consumer.conftest import NewConsumerFunction, ProduceFunction
    from tests.fixtures.kafka import ConsumeFunction, NewTopicFunction

SOON = RetryPolicy(attempts=3, base=0.01, cap=0.05)


async def test_dead_letters_say_why_from_where_and_how_often(
    new_topic: NewTopicFunction,
    produce: ProduceFunction,
    new_consumer: NewConsumerFunction,
    consume: ConsumeFunction,
) -> None:
    topic, dead = new_topic(partitions=1), new_topic("dead", partitions=1)
    produce(
        topic,
        [
            Sent("fails", {"n": 1}, key="k", headers={"traceparent": "00-a-b-01"}),
            Sent("rejected", {"n": 2}, key="k", headers={"dead-letter-code": "AN_OLDER_ONE"}),
            Sent("no-json", key="k", raw=b"{"),
            Sent("no-text", {}, key="k", headers={"event-type": b"\xff\xfe"}),
            Sent("x" * 201, {}, key="k"),
            Sent("bad-id", {}, key="k", headers={"outbox-id": "seven"}),
            Sent("unknown", {}, key="k", event_type="order.unknown"),
            Sent("good", {"n": 3}, key="k"),
        ],
    )
    consumer = new_consumer(
        topic,
        group="billing",
        inbox=None,
        retry=SOON,
        dead_letter_topic=dead,
        unhandled="dead-letter",
    )
    handled: list[int] = []

    @consumer.on("order.created")
    async def handle(order: dict[str, Any]) -> None:
        if order["n"] == 1:
            raise ValueError("no such customer")
        if order["n"] == 2:
            raise RejectError("sold out", code="SOLD_OUT")
        handled.append(order["n"])

    async with running(consumer):
        letters = await asyncio.to_thread(consume, dead, 7)
        await until(lambda: settled(consumer) == 8, "all are done with")
    assert handled == [3]
    found = [
        (letter.headers["dead-letter-code"], letter.headers["dead-letter-attempts"])
        for letter in letters
    ]
    assert found == [
        ("HANDLER_FAILED", "3"),
        ("SOLD_OUT", "1"),
        ("UNDECODABLE", "1"),
        ("UNDECODABLE", "1"),
        ("UNDECODABLE", "1"),
        ("UNDECODABLE", "1"),
        ("NO_HANDLER", "1"),
    ]
    first = letters[0]
    assert (first.key, first.value) == (b"k", b'{"n": 1}')
    assert first.headers["traceparent"] == "00-a-b-01"
    assert first.headers["idempotency-key"] == "fails"
    assert first.headers["dead-letter-reason"] == "ValueError: no such customer"
    assert first.headers["dead-letter-topic"] == topic
    assert first.headers["dead-letter-partition"] == "0"
    assert first.headers["dead-letter-offset"] == "0"
    assert first.headers["dead-letter-consumer"] == "billing"
    assert "dead-letter-failed-at" in first.headers
    assert letters[2].value == b"{"


async def test_without_dead_letter_topic_the_key_waits_and_nothing_is_lost(
    new_topic: NewTopicFunction,
    produce: ProduceFunction,
    new_consumer: NewConsumerFunction,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = new_topic(partitions=1)
    produce(topic, [Sent("bad", 1, key="bad"), Sent("next", 2, key="bad"), Sent("other", 3)])
    consumer = new_consumer(topic, inbox=None, retry=SOON)
    let = asyncio.Event()
    handled: list[int] = []

    @consumer.on("*")
    async def handle(number: int) -> None:
        if number == 1 and not let.is_set():
            raise ValueError("a bug, being fixed")
        handled.append(number)

    async with running(consumer):
        await until(
            lambda: consumer.counts.get("blocked", 0) >= 3 and handled, "it is tried on and on"
        )
        assert handled == [3]
        assert committed(consumer, topic).get(0, 0) == 0
        let.set()
        await until(lambda: settled(consumer) == 3, "the key went on")
    assert handled == [3, 1, 2]
    assert "holds its key: HANDLER_FAILED: ValueError: a bug, being fixed" in caplog.text


async def test_dead_letter_topic_that_takes_nothing_loses_nothing(
    new_topic: NewTopicFunction,
    produce: ProduceFunction,
    new_consumer: NewConsumerFunction,
    consume: ConsumeFunction,
) -> None:
    """Too large for the topic: the message waits, others go on; other letters are taken."""
    topic = new_topic(partitions=1)
    dead = new_topic("dead", partitions=1, config={"max.message.bytes": "1000"})
    produce(topic, [Sent("large", raw=b"{" + b" " * 2000), Sent("small", raw=b"{"), Sent("ok", 1)])
    consumer = new_consumer(topic, inbox=None, retry=SOON, dead_letter_topic=dead)

    @consumer.on("*")
    async def handle(number: int) -> None:
        pass

    async with running(consumer):
        letters = await asyncio.to_thread(consume, dead, 1)
        await until(lambda: settled(consumer) == 2, "the others are done with")
        assert committed(consumer, topic).get(0, 0) == 0
    assert [letter.headers["idempotency-key"] for letter in letters] == ["small"]
