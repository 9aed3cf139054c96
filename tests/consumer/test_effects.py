"""Every message has its effect once, in the transaction that keeps its key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.consumer.conftest import Sent, running, until

if TYPE_CHECKING:
    import psycopg

    from tests.consumer.conftest import NewConsumerFunction, ProduceFunction, Shop
    from tests.fixtures.kafka import NewTopicFunction

KEEP = "insert into effect (message_key, number) values (%s, %s)"


async def test_each_message_has_its_effect_once(
    new_topic: NewTopicFunction,
    produce: ProduceFunction,
    new_consumer: NewConsumerFunction,
    shop: Shop,
) -> None:
    topic = new_topic()
    produce(topic, [Sent(f"m-{n}", {"number": n}) for n in range(200)])
    produce(topic, [Sent(f"m-{n}", {"number": n}) for n in range(0, 200, 2)])
    consumer = new_consumer(topic)

    @consumer.on("order.created")
    async def keep(order: dict[str, Any], conn: psycopg.AsyncConnection[Any], message: Any) -> None:
        await conn.execute(KEEP, [message.message_key, order["number"]])

    async with running(consumer):
        await until(
            lambda: (
                consumer.counts.get("processed", 0) + consumer.counts.get("duplicates", 0) >= 300
            ),
            "all came",
        )
    assert sorted(shop.effects()) == sorted(f"m-{n}" for n in range(200))
    assert consumer.counts["processed"] == 200
    assert consumer.counts["duplicates"] == 100
