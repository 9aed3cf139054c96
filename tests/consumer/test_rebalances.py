"""Partitions that move: what is in hand is finished or rolled back before they are gone."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from tests.consumer.conftest import Sent, committed, running, settled, until
from tests.fixtures.postgres import on_one_server

if TYPE_CHECKING:
    import psycopg

    from bridge.consumer import Consumer, Received
    from tests.consumer.conftest import NewConsumerFunction, ProduceFunction, Shop
    from tests.fixtures.kafka import NewTopicFunction

pytestmark = [on_one_server]

QUICK = {"heartbeat_interval_ms": 100, "session_timeout_ms": 6000}
KEEP = "insert into effect (message_key, ordering_key, number, consumer) values (%s, %s, %s, %s)"


def keeps_effects(consumer: Consumer, name: str, pause: float = 0.0) -> None:
    @consumer.on("*")
    async def keep(number: int, conn: psycopg.AsyncConnection[Any], message: Received) -> None:
        await asyncio.sleep(pause)
        key = message.key.decode() if message.key else None
        await conn.execute(KEEP, [message.message_key, key, number, name])


async def test_two_consumers_share_the_work_and_each_effect_happens_once(
    new_topic: NewTopicFunction,
    produce: ProduceFunction,
    new_consumer: NewConsumerFunction,
    shop: Shop,
) -> None:
    """The second one comes in the middle and goes before the end."""
    topic = new_topic(partitions=4)
    sent = 0

    def send(count: int) -> None:
        nonlocal sent
        numbers = range(sent, sent + count)
        produce(topic, [Sent(f"m-{n}", n, key=f"k-{n % 40}") for n in numbers])
        sent += count

    first, second = (new_consumer(topic, group="shared", kafka=QUICK) for _ in range(2))
    keeps_effects(first, "first", 0.005)
    keeps_effects(second, "second", 0.005)
    count = "select count(*) from effect"

    def second_is_at_work() -> bool:
        # However late it comes, the first one is not through before it has had its share.
        if shop.value(count) > sent - 400:
            send(400)
        return bool(shop.value(count + " where consumer = 'second'") >= 50)

    send(800)
    async with running(first):
        await until(lambda: shop.value(count) >= 50, "the first one is at work")
        async with running(second):
            await until(second_is_at_work, "so is the second")
        # Some for each partition: what the first one has not read it does not commit.
        send(400)
        await until(lambda: shop.value(count) >= sent, "all have their effect")
        await until(lambda: sum(committed(first, topic).values()) == sent, "all offsets")
    rows = shop.query("select ordering_key, number from effect order by effect_id")
    assert len(rows) == len(set(rows)) == sent
    by_key = defaultdict(list)
    for key, number in rows:
        by_key[key].append(number)
    for numbers in by_key.values():
        assert numbers == sorted(numbers)
    assert first.counts.get("reorderings", 0) == second.counts.get("reorderings", 0) == 0


async def test_handler_that_runs_while_partitions_are_taken_away_is_finished_first(
    new_topic: NewTopicFunction,
    produce: ProduceFunction,
    new_consumer: NewConsumerFunction,
    shop: Shop,
) -> None:
    topic = new_topic(partitions=2)
    produce(topic, [Sent(f"m-{n}", n, key="k", partition=n % 2) for n in range(20)])
    first, second = (
        new_consumer(topic, group="drained", kafka=QUICK, drain_timeout=30) for _ in range(2)
    )
    begun, let = asyncio.Event(), asyncio.Event()
    calls = 0

    @first.on("*")
    async def slow(number: int, conn: psycopg.AsyncConnection[Any], message: Received) -> None:
        nonlocal calls
        calls += 1
        begun.set()
        await let.wait()
        await conn.execute(KEEP, [message.message_key, None, number, "first"])

    keeps_effects(second, "second")
    async with running(first):
        await begun.wait()
        async with running(second):
            await until(lambda: first.is_handing_over, "the first one gives its partitions up")
            let.set()
            await until(lambda: len(shop.effects()) == 20, "all have their effect")
            await until(
                lambda: (
                    sum(committed(second, topic).values()) + sum(committed(first, topic).values())
                    >= 20
                ),
                "all offsets",
            )
    assert sorted(shop.effects()) == sorted(f"m-{n}" for n in range(20))
    # What was in hand was committed before it was given away: nothing came or was done twice.
    assert calls == shop.value("select count(*) from effect where consumer = 'first'")
    assert first.counts.get("duplicates", 0) + second.counts.get("duplicates", 0) == 0


@pytest.mark.parametrize("kind", ["coroutine", "thread"])
async def test_handler_that_does_not_end_is_rolled_back_and_done_by_the_other(
    new_topic: NewTopicFunction,
    produce: ProduceFunction,
    new_consumer: NewConsumerFunction,
    shop: Shop,
    kind: str,
) -> None:
    """Python cannot end a thread: it goes on, and must not commit when it is through."""
    topic = new_topic(partitions=1)
    produce(topic, [Sent("stuck", 1)])
    options = {"kafka": QUICK, "drain_timeout": 0.3, "lock_timeout": 0.5, "group": kind}
    first, second = (new_consumer(topic, **options) for _ in range(2))
    begun, let = threading.Event(), threading.Event()

    if kind == "coroutine":

        @first.on("*")
        async def hangs(number: int, conn: psycopg.AsyncConnection[Any], message: Received) -> None:
            await conn.execute(KEEP, [message.message_key, None, number, "first"])
            begun.set()
            await asyncio.sleep(3600)

    else:

        @first.on("*")
        def hangs_in_thread(number: int, conn: psycopg.Connection[Any], message: Received) -> None:
            conn.execute(KEEP, [message.message_key, None, number, "first"])
            begun.set()
            let.wait(60)

    keeps_effects(second, "second")
    async with running(first):
        await until(begun.is_set, "the first one has it in hand")
        # With one partition for two, one of them has nothing: the first one leaves.
        async with running(second):
            first.stop()
            if kind == "thread":
                await until(
                    lambda: second.counts.get("retries", 0) >= 1,
                    "the second one waits for the first one's transaction",
                )
                assert shop.effects() == []
            let.set()
            await until(lambda: settled(second) == 1, "the second one does it")
    assert shop.query("select consumer from effect") == [("second",)]
    assert shop.value("select count(*) from app_inbox") == 1


async def test_static_member_comes_back_to_its_partitions_without_a_rebalance(
    new_topic: NewTopicFunction,
    produce: ProduceFunction,
    new_consumer: NewConsumerFunction,
    shop: Shop,
) -> None:
    topic = new_topic(partitions=2)
    # Longer than a busy machine takes to start a consumer again.
    lasting = {**QUICK, "session_timeout_ms": 60_000}
    options = {"group": f"static-{topic}", "kafka": lasting}
    stays = new_consumer(topic, static_member="a", **options)
    keeps_effects(stays, "stays")
    async with running(stays):
        for _ in range(2):
            comes = new_consumer(topic, static_member="b", **options)
            keeps_effects(comes, "comes")
            async with running(comes):
                await until(lambda: comes.is_ready, "it has its partition")  # noqa: B023 - awaited here
        rebalances = stays.rebalances
        produce(topic, [Sent(f"m-{n}", n, partition=n % 2) for n in range(10)])
        again = new_consumer(topic, static_member="b", **options)
        keeps_effects(again, "again")
        async with running(again):
            await until(lambda: len(shop.effects()) == 10, "all have their effect")
        assert stays.rebalances == rebalances


async def test_stop_finishes_what_is_in_hand_and_commits_it(
    new_topic: NewTopicFunction,
    produce: ProduceFunction,
    new_consumer: NewConsumerFunction,
    shop: Shop,
) -> None:
    topic = new_topic(partitions=1)
    produce(topic, [Sent(f"m-{n}", n, key=f"k-{n}") for n in range(500)])
    consumer = new_consumer(topic, group="stopped", concurrency=4, commit_interval=600)
    keeps_effects(consumer, "one", 0.05)
    async with running(consumer):
        await until(lambda: settled(consumer) >= 50, "it is at work")
    done = len(shop.effects())
    assert 50 <= done < 500
    assert done == consumer.counts["processed"]
    rest = new_consumer(topic, group="stopped")
    keeps_effects(rest, "two")
    async with running(rest):
        await until(lambda: rest.counts.get("processed", 0) + done >= 500, "the rest is done")
    assert len(shop.effects()) == 500
    # Keys run side by side: at most those beside the first one that was not done come twice.
    assert rest.counts.get("duplicates", 0) <= 4
