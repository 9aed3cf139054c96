"""The consumer's database goes and comes back: nothing is lost, nothing is charged."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge.consumer import Inbox, RetryPolicy
from bridge.database.migration_sets import INBOX
from bridge.database.migrations import Migrator
from bridge.errors import DatabaseError, SchemaError
from tests.consumer.conftest import Sent, running, settled, until
from tests.fixtures.postgres import on_one_server

if TYPE_CHECKING:
    from bridge.consumer import Received
    from bridge.local.postgres import LocalPostgres
    from tests.consumer.conftest import NewConsumerFunction, ProduceFunction, Shop
    from tests.fixtures.kafka import ConsumeFunction, NewTopicFunction

pytestmark = [on_one_server]

ONCE = RetryPolicy(attempts=1)
KEEP = "insert into effect (message_key) values (%s)"


async def test_server_that_is_killed_and_started_again_costs_nothing(
    new_topic: NewTopicFunction,
    produce: ProduceFunction,
    new_consumer: NewConsumerFunction,
    own_postgres: LocalPostgres,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A single attempt is allowed, and nothing fails; in coroutines and in threads."""
    with psycopg.connect(own_postgres.url, autocommit=True) as conn:
        Migrator(conn, chosen=INBOX).up()
        conn.execute("create table effect (message_key text)")
    topic = new_topic(partitions=2)
    produce(topic, [Sent(f"m-{n}", n, "ab"[n % 2]) for n in range(1000)])
    consumer = new_consumer(topic, inbox=Inbox(own_postgres.url), retry=ONCE)

    @consumer.on("a")
    async def keep(number: int, conn: psycopg.AsyncConnection[Any], message: Received) -> None:
        await conn.execute(KEEP, [message.message_key])
        await asyncio.sleep(0.002)

    @consumer.on("b")
    def keep_too(number: int, conn: psycopg.Connection[Any], message: Received) -> None:
        conn.execute(KEEP, [message.message_key])

    caplog.set_level("INFO", "bridge.consumer")
    async with running(consumer):
        await until(lambda: settled(consumer) >= 100, "it is at work")
        await asyncio.to_thread(own_postgres.kill)
        await until(lambda: "cannot be reached" in caplog.text, "it has noticed")
        await asyncio.to_thread(own_postgres.start)
        await until(lambda: settled(consumer) >= 400, "it is at work again")
        await asyncio.to_thread(own_postgres.restart)
        await until(lambda: settled(consumer) == 1000, "all are done with")
    with psycopg.connect(own_postgres.url) as conn:
        found = conn.execute("select count(*), count(distinct message_key) from effect").fetchone()
    assert found == (1000, 1000)
    assert "dead_letters" not in consumer.counts
    assert "blocked" not in consumer.counts
    assert "the consumer's database is back" in caplog.text


async def test_sessions_that_are_ended_cost_nothing(
    new_topic: NewTopicFunction,
    produce: ProduceFunction,
    new_consumer: NewConsumerFunction,
    shop: Shop,
) -> None:
    topic = new_topic(partitions=1)
    produce(topic, [Sent(f"m-{n}", n) for n in range(300)])
    consumer = new_consumer(topic, retry=ONCE)

    @consumer.on("*")
    async def keep(number: int, conn: psycopg.AsyncConnection[Any], message: Received) -> None:
        await conn.execute(KEEP, [message.message_key])
        if number % 50 == 7 and message.attempt == 1:
            await conn.execute("select pg_terminate_backend(pg_backend_pid())")

    async with running(consumer):
        await until(lambda: settled(consumer) == 300, "all are done with")
    assert sorted(shop.effects()) == sorted(f"m-{n}" for n in range(300))
    assert consumer.counts["retries"] == 6
    assert "blocked" not in consumer.counts


async def test_message_that_breaks_the_database_each_time_is_found_out(
    new_topic: NewTopicFunction,
    produce: ProduceFunction,
    new_consumer: NewConsumerFunction,
    consume: ConsumeFunction,
    shop: Shop,
) -> None:
    """Some lost sessions are nobody's fault; after that they count against the message."""
    topic, dead = new_topic(partitions=1), new_topic("dead", partitions=1)
    produce(topic, [Sent("poison", 1), Sent("good", 2)])
    consumer = new_consumer(topic, retry=ONCE, dead_letter_topic=dead)
    tries = 0

    @consumer.on("*")
    async def keep(number: int, conn: psycopg.AsyncConnection[Any], message: Received) -> None:
        nonlocal tries
        if number == 1:
            tries += 1
            await conn.execute("select pg_terminate_backend(pg_backend_pid())")
        await conn.execute(KEEP, [message.message_key])

    async with running(consumer):
        letters = await asyncio.to_thread(consume, dead, 1)
        await until(lambda: settled(consumer) == 2, "both are done with")
    assert [letter.headers["idempotency-key"] for letter in letters] == ["poison"]
    assert tries == 7
    assert shop.effects() == ["good"]


async def test_deadlock_between_two_keys_is_tried_again_uncharged(
    new_topic: NewTopicFunction,
    produce: ProduceFunction,
    new_consumer: NewConsumerFunction,
    shop: Shop,
) -> None:
    shop.conn.execute("create table balance (account integer primary key, cents integer)")
    shop.conn.execute("insert into balance values (0, 0), (1, 0)")
    shop.conn.execute("alter system set deadlock_timeout = '20ms'")
    shop.conn.execute("select pg_reload_conf()")
    topic = new_topic(partitions=1)
    produce(topic, [Sent(f"m-{n}", n) for n in range(20)])
    consumer = new_consumer(topic, retry=ONCE)

    @consumer.on("*")
    async def move(number: int, conn: psycopg.AsyncConnection[Any]) -> None:
        for account in (number % 2, 1 - number % 2):
            await conn.execute("update balance set cents = cents + 1 where account = %s", [account])
            await asyncio.sleep(0.01)

    try:
        async with running(consumer):
            await until(lambda: settled(consumer) == 20, "all are done with")
    finally:
        shop.conn.execute("alter system reset deadlock_timeout")
        shop.conn.execute("select pg_reload_conf()")
    assert shop.query("select cents from balance") == [(20,), (20,)]
    assert consumer.counts["retries"] > 0
    assert "blocked" not in consumer.counts


async def test_start_without_inbox_or_database_says_what_to_do(
    new_topic: NewTopicFunction, new_consumer: NewConsumerFunction, empty_database_url: str
) -> None:
    consumer = new_consumer(new_topic(), inbox=Inbox(empty_database_url))
    consumer.on("*")(print)
    with pytest.raises(SchemaError, match="outbox-bridge migrate up --set inbox"):
        await consumer.serve()
    nowhere = new_consumer(new_topic(), inbox=Inbox("postgresql://nobody@127.0.0.1:1/nothing"))
    nowhere.on("*")(print)
    with pytest.raises(DatabaseError, match="cannot connect"):
        await nowhere.serve()
