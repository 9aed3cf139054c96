"""Every message has its effect once, in the transaction that keeps its key."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pydantic

from bridge.consumer import Inbox, RetryPolicy
from tests.consumer.conftest import Sent, running, settled, until
from tests.fixtures.postgres import on_one_server

if TYPE_CHECKING:
    import psycopg

    from bridge.consumer import Received
    from tests.consumer.conftest import NewConsumerFunction, ProduceFunction, Shop
    from tests.fixtures.kafka import ConsumeFunction, NewTopicFunction
    from tests.fixtures.relays import Outbox, RunRelayFunction

KEEP = "insert into effect (message_key, number) values (%s, %s)"
SOON = RetryPolicy(attempts=3, base=0.01, cap=0.05)


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
    async def keep(
        order: dict[str, Any], conn: psycopg.AsyncConnection[Any], message: Received
    ) -> None:
        await conn.execute(KEEP, [message.message_key, order["number"]])

    async with running(consumer):
        await until(lambda: settled(consumer) >= 300, "all came")
    assert sorted(shop.effects()) == sorted(f"m-{n}" for n in range(200))
    assert consumer.counts["processed"] == 200
    assert consumer.counts["duplicates"] == 100
    assert shop.value("select count(*) from app_inbox") == 200


@on_one_server
async def test_what_a_relay_sends_arrives_whole(
    new_topic: NewTopicFunction,
    outbox: Outbox,
    run_relay: RunRelayFunction,
    new_consumer: NewConsumerFunction,
    shop: Shop,
) -> None:
    """From the outbox to the inbox, with the real relay: key, id, type, order, payload."""
    topic = new_topic()
    ids = outbox.add(20, topic, ordering_key="customer-7", headers='{"x": "ü"}')
    await asyncio.to_thread(run_relay)
    consumer = new_consumer(topic)
    came: list[Received] = []

    @consumer.on("order.created")
    async def keep(order: dict[str, Any], message: Received) -> None:
        came.append(message)

    async with running(consumer):
        await until(lambda: settled(consumer) == 20, "all came")
    assert [message.outbox_id for message in came] == ids
    assert {message.key for message in came} == {b"customer-7"}
    assert came[0].headers["x"] == "ü"
    assert not came[0].is_repeated
    kept = shop.query("select message_key, outbox_id from app_inbox order by outbox_id")
    assert kept == [(f"m-{n}", outbox_id) for n, outbox_id in enumerate(ids, 1)]


@on_one_server
async def test_plain_functions_run_in_threads_with_a_connection_of_their_kind(
    new_topic: NewTopicFunction,
    produce: ProduceFunction,
    new_consumer: NewConsumerFunction,
    shop: Shop,
) -> None:
    topic = new_topic()
    produce(topic, [Sent(f"m-{n}", {"number": n}) for n in range(50)])
    produce(topic, [Sent(f"m-{n}", {"number": n}) for n in range(50)])
    consumer = new_consumer(topic)
    threads = set()

    @consumer.on("order.created")
    def keep(order: dict[str, Any], conn: psycopg.Connection[Any], message: Received) -> None:
        threads.add(threading.current_thread())
        conn.execute(KEEP, [message.message_key, order["number"]])

    async with running(consumer):
        await until(lambda: settled(consumer) >= 100, "all came")
    assert sorted(shop.effects()) == sorted(f"m-{n}" for n in range(50))
    assert threading.main_thread() not in threads
    await until(lambda: not any(t.is_alive() for t in threads), "the threads have ended")


@on_one_server
async def test_failed_handler_leaves_nothing_and_is_tried_again(
    new_topic: NewTopicFunction,
    produce: ProduceFunction,
    new_consumer: NewConsumerFunction,
    shop: Shop,
) -> None:
    """What it had written is rolled back with the key; also where it hides a failed statement."""
    topic = new_topic()
    produce(
        topic,
        [
            Sent("raises", 1),
            Sent("hides", 1, "order.hidden"),
            Sent("commits", 1, "order.committed"),
            Sent("in-thread", 1, "order.threaded"),
        ],
    )
    consumer = new_consumer(topic, retry=SOON)
    tries: list[str] = []

    @consumer.on("order.created")
    async def raises(order: int, conn: psycopg.AsyncConnection[Any], message: Received) -> None:
        tries.append(message.message_key)
        await conn.execute(KEEP, [message.message_key, order])
        if message.attempt == 1:
            raise ValueError("not yet")

    @consumer.on("order.hidden")
    async def hides(order: int, conn: psycopg.AsyncConnection[Any], message: Received) -> None:
        tries.append(message.message_key)
        await conn.execute(KEEP, [message.message_key, order])
        if message.attempt == 1:
            with contextlib.suppress(Exception):  # what careless handlers do
                await conn.execute("select 1/0")

    @consumer.on("order.committed")
    async def rolls_back(order: int, conn: psycopg.AsyncConnection[Any], message: Received) -> None:
        tries.append(message.message_key)
        await conn.execute(KEEP, [message.message_key, order])
        if message.attempt == 1:
            await conn.execute("rollback")

    @consumer.on("order.threaded")
    def threaded(order: int, conn: psycopg.Connection[Any], message: Received) -> None:
        tries.append(message.message_key)
        conn.execute(KEEP, [message.message_key, order])
        if message.attempt == 1:
            raise ValueError("not yet")

    async with running(consumer):
        await until(lambda: settled(consumer) >= 4, "all are processed")
    assert sorted(shop.effects()) == ["commits", "hides", "in-thread", "raises"]
    assert sorted(tries) == sorted(["commits", "hides", "in-thread", "raises"] * 2)
    assert consumer.counts["retries"] == 4


@on_one_server
async def test_other_content_under_a_known_key_is_reported_and_not_processed(
    new_topic: NewTopicFunction,
    produce: ProduceFunction,
    new_consumer: NewConsumerFunction,
    consume: ConsumeFunction,
    shop: Shop,
) -> None:
    topic, dead = new_topic(), new_topic("dead")
    produce(
        topic,
        [
            Sent("a", {"number": 1}, key="k"),
            Sent("a", {"number": 2}, key="k"),
            Sent("a", {"number": 1}, event_type="order.paid", key="k"),
            Sent("a", {"number": 1}, key="k"),
            Sent("a", tombstone=True, key="k"),
        ],
    )
    consumer = new_consumer(topic, dead_letter_topic=dead)

    @consumer.on("order.*")
    async def keep(
        order: dict[str, Any], conn: psycopg.AsyncConnection[Any], message: Received
    ) -> None:
        await conn.execute(KEEP, [message.message_key, order["number"]])

    async with running(consumer):
        letters = await asyncio.to_thread(consume, dead, 3)
        await until(lambda: consumer.counts.get("duplicates") == 1, "the repetition is absorbed")
    assert shop.query("select message_key, number from effect") == [("a", 1)]
    codes = [letter.headers["dead-letter-code"] for letter in letters]
    assert codes == ["KEY_REUSED", "KEY_REUSED", "UNDECODABLE"]
    assert consumer.counts["conflicts"] == 2


@on_one_server
async def test_results_are_kept_and_returned_to_who_asks(
    new_topic: NewTopicFunction,
    produce: ProduceFunction,
    new_consumer: NewConsumerFunction,
    shop: Shop,
) -> None:
    topic = new_topic()
    produce(topic, [Sent("a", {"number": 7})])
    consumer = new_consumer(topic, group="billing")

    @consumer.on("order.created")
    async def bill(order: dict[str, Any]) -> dict[str, int]:
        return {"bill": order["number"] * 100}

    async with running(consumer):
        await until(lambda: settled(consumer) == 1, "it is processed")
    inbox = Inbox(shop.url, consumer="billing")
    same: dict[str, Any] = {
        "message_key": "a",
        "event_type": "order.created",
        "payload": b'{"number": 7}',
    }
    with shop.conn.transaction():
        known = inbox.receive(shop.conn, **same)
        other = inbox.receive(shop.conn, **{**same, "payload": b"{}"})
        new = inbox.receive(shop.conn, message_key="b")
        inbox.keep_result(shop.conn, "b", [1])
        again = inbox.receive(shop.conn, message_key="b")
    assert (known.is_new, known.differs, known.result) == (False, False, {"bill": 700})
    assert (other.is_new, other.differs) == (False, True)
    assert new.is_new
    assert (again.is_new, again.result) == (False, [1])


@dataclass
class Order:
    number: int
    note: str = ""


class Paid(pydantic.BaseModel):
    number: int


async def test_payloads_come_in_the_shape_that_the_handler_names(
    new_topic: NewTopicFunction, produce: ProduceFunction, new_consumer: NewConsumerFunction
) -> None:
    topic = new_topic()
    produce(
        topic,
        [
            Sent("a", {"number": 1, "unknown": True}, "order.created"),
            Sent("b", {"number": 2}, "order.paid"),
            Sent("c", event_type="order.image", raw=b"\xff\x00"),
            Sent("d", event_type="order.deleted", tombstone=True),
            Sent("e", {"number": 3}, "order.deleted"),
            Sent("f", [1, 2], "order.anything"),
        ],
    )
    consumer = new_consumer(topic, inbox=None)
    came: list[Any] = []

    @consumer.on("order.created")
    async def created(order: Order) -> None:
        came.append(order)

    @consumer.on("order.paid")
    async def paid(order: Paid) -> None:
        came.append(order)

    @consumer.on("order.image")
    async def image(order: bytes) -> None:
        came.append(order)

    @consumer.on("order.deleted")
    async def deleted(order: Order | None) -> None:
        came.append(order)

    @consumer.on("*")
    async def anything(order) -> None:  # type: ignore[no-untyped-def]
        came.append(order)

    async with running(consumer):
        await until(lambda: settled(consumer) == 6, "all are processed")
    for wanted in (Order(1), Paid(number=2), b"\xff\x00", None, Order(3), [1, 2]):
        assert wanted in came


@on_one_server
async def test_records_of_strangers_are_known_by_their_place(
    kafka: Any, new_topic: NewTopicFunction, new_consumer: NewConsumerFunction, shop: Shop
) -> None:
    """No headers at all: handled by "*", and a second group's reading starts from nothing."""
    from confluent_kafka import Producer  # noqa: PLC0415 - used here alone

    topic = new_topic(partitions=1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for _ in range(3):
        producer.produce(topic, value=b'{"number": 1}')
    assert producer.flush(60) == 0
    consumer = new_consumer(topic)

    @consumer.on("*")
    async def keep(
        order: dict[str, Any], conn: psycopg.AsyncConnection[Any], message: Received
    ) -> None:
        await conn.execute(KEEP, [message.message_key, order["number"]])

    async with running(consumer):
        await until(lambda: settled(consumer) == 3, "all are processed")
    assert sorted(shop.effects()) == [f"{topic}/0/{n}" for n in range(3)]
