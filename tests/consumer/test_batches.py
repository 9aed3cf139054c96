"""Many messages in one transaction: the same promises, and a bad one costs only itself."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from bridge.consumer import RetryPolicy
from tests.consumer.conftest import Sent, committed, running, settled, until
from tests.fixtures.postgres import on_one_server

if TYPE_CHECKING:
    import psycopg

    from bridge.consumer import Received
    from tests.consumer.conftest import NewConsumerFunction, ProduceFunction, Shop
    from tests.fixtures.kafka import ConsumeFunction, NewTopicFunction

pytestmark = [on_one_server]

SOON = RetryPolicy(attempts=2, base=0.01, cap=0.05)
KEEP_MANY = (
    "insert into effect (message_key, ordering_key, number) "
    "select * from unnest(%s::text[], %s::text[], %s::integer[])"
)
KEEP = "insert into effect (message_key, ordering_key, number) values (%s, %s, %s)"


def columns(messages: list[Received], numbers: list[int]) -> list[list[Any]]:
    keys = [message.key.decode() if message.key else None for message in messages]
    return [[message.message_key for message in messages], keys, numbers]


async def test_each_effect_happens_once_and_in_order_per_key(
    new_topic: NewTopicFunction,
    produce: ProduceFunction,
    new_consumer: NewConsumerFunction,
    shop: Shop,
) -> None:
    """Two types on one key, one handled in bulk and one by one; every third message comes twice."""
    topic = new_topic(partitions=3)
    records = []
    for n in range(1500):
        kind = "order.created" if n // 40 % 2 == 0 else "order.paid"
        if n % 10 == 0:
            kind = "order.of-no-interest"
        records.append(Sent(f"m-{n}", n, kind, key=f"k-{n % 20}"))
        if n % 3 == 0:
            records.append(records[-1])
    produce(topic, records)
    consumer = new_consumer(topic, batch_size=100, concurrency=3)
    sizes = []

    @consumer.on_many("order.created")
    async def created(
        numbers: list[int], conn: psycopg.AsyncConnection[Any], messages: list[Received]
    ) -> None:
        sizes.append(len(numbers))
        await conn.execute(KEEP_MANY, columns(messages, numbers))

    @consumer.on("order.paid")
    async def paid(number: int, conn: psycopg.AsyncConnection[Any], message: Received) -> dict:  # type: ignore[type-arg]
        key = message.key.decode() if message.key else None
        await conn.execute(KEEP, [message.message_key, key, number])
        return {"number": number}

    async with running(consumer):
        await until(lambda: settled(consumer) == 2000, "all are done with")
        await until(lambda: sum(committed(consumer, topic).values()) == 2000, "all offsets")
    rows = shop.query("select ordering_key, number from effect order by effect_id")
    assert sorted(n for _, n in rows) == [n for n in range(1500) if n % 10]
    by_key = defaultdict(list)
    for key, number in rows:
        by_key[key].append(number)
    for numbers in by_key.values():
        assert numbers == sorted(numbers)
    assert max(sizes) > 10
    assert consumer.counts.get("reorderings", 0) == 0
    assert consumer.counts["duplicates"] == sum(1 for n in range(0, 1500, 3) if n % 10)
    kept = shop.query(
        "select message_key, result_json from app_inbox where result_json is not null"
    )
    assert {key: result["number"] for key, result in kept} == {
        f"m-{n}": n for n in range(1500) if n % 10 and n // 40 % 2 == 1
    }


async def test_bad_message_costs_only_itself(
    new_topic: NewTopicFunction,
    produce: ProduceFunction,
    new_consumer: NewConsumerFunction,
    consume: ConsumeFunction,
    shop: Shop,
) -> None:
    """One raises, one is no JSON, one has another's key: each is found out and sent aside."""
    topic, dead = new_topic(partitions=1), new_topic("dead", partitions=1)
    records = [Sent(f"m-{n}", n, key=f"k-{n % 5}") for n in range(300)]
    records[100] = Sent("raises", -1, key="k-0")
    records[150] = Sent("no-json", key="k-1", raw=b"{")
    records[200] = Sent("m-3", 4, key="k-3")
    produce(topic, records)
    consumer = new_consumer(
        topic, batch_size=100, batch_wait=0.05, dead_letter_topic=dead, retry=SOON
    )
    calls = 0

    @consumer.on_many("*")
    def keep(numbers: list[int], conn: psycopg.Connection[Any], messages: list[Received]) -> None:
        nonlocal calls
        calls += 1
        if -1 in numbers:
            raise ValueError("cannot")
        conn.execute(KEEP_MANY, columns(messages, numbers))

    async with running(consumer):
        letters = await asyncio.to_thread(consume, dead, 3)
        await until(lambda: settled(consumer) == 300, "all are done with")
    codes = {one.headers["idempotency-key"]: one.headers["dead-letter-code"] for one in letters}
    assert codes == {"raises": "HANDLER_FAILED", "no-json": "UNDECODABLE", "m-3": "KEY_REUSED"}
    rows = shop.query("select number from effect order by effect_id")
    assert sorted(n for (n,) in rows) == [n for n in range(300) if n not in {100, 150, 200}]
    assert calls < 200
