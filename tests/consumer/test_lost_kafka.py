"""Kafka goes and comes back, or answers with an error: nothing is lost, nothing is skipped."""

from __future__ import annotations

import asyncio
import uuid
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import CorruptRecordException, TopicAuthorizationFailedError
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bridge.consumer import Consumer, Inbox
from bridge.consumer.meters import Meters
from bridge.consumer.runner import Runner
from bridge.consumer.watch import Watch
from bridge.errors import KafkaError
from tests.consumer.conftest import PATIENCE, Sent, running, settled, until, write_records
from tests.fixtures.kafka import silent
from tests.fixtures.postgres import on_one_server

if TYPE_CHECKING:
    import psycopg

    from bridge.consumer import Received
    from tests.consumer.conftest import Shop
    from tests.fixtures.kafka import OwnKafkaFunction

KEEP = "insert into effect (message_key) values (%s)"


@on_one_server
async def test_broker_that_is_killed_and_started_again_costs_nothing(
    own_kafka: OwnKafkaFunction, shop: Shop
) -> None:
    kafka = own_kafka()
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}, logger=silent)
    admin.create_topics([NewTopic(topic, num_partitions=3)])[topic].result(PATIENCE)
    write_records(kafka.bootstrap_servers, topic, [Sent(f"m-{n}", n) for n in range(1000)])
    consumer = Consumer(
        topic,
        group="survives",
        bootstrap_servers=kafka.bootstrap_servers,
        inbox=Inbox(shop.url, short_retention="ignore"),
        commit_interval=0.05,
        max_records=50,
        kafka={"session_timeout_ms": 6000, "request_timeout_ms": 5000},
    )

    @consumer.on("*")
    async def keep(number: int, conn: psycopg.AsyncConnection[Any], message: Received) -> None:
        await conn.execute(KEEP, [message.message_key])
        await asyncio.sleep(0.003)

    async with running(consumer):
        await until(lambda: settled(consumer) >= 100, "it is at work")
        await asyncio.to_thread(kafka.kill)
        await asyncio.to_thread(kafka.restart)
        await until(lambda: len(set(shop.effects())) == 1000, "all have their effect")
    assert len(shop.effects()) == 1000


class Client:
    """Stands for aiokafka's consumer: partition 1 was committed at 7, partition 2 never."""

    def __init__(self) -> None:
        self.sought: dict[int, int] = {}

    def assignment(self) -> set[TopicPartition]:
        return {TopicPartition("t", number) for number in range(3)}

    async def committed(self, tp: TopicPartition) -> int | None:
        return 7 if tp.partition == 1 else None

    async def beginning_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 3)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self.sought[tp.partition] = offset


def runner() -> Runner:
    options = Consumer("t", group="g")._options
    watch = Watch()
    nothing: Any = None
    return Runner(options, nothing, watch, Meters(watch, "g"), nothing, as_child=False)


async def test_position_is_set_back_to_what_was_taken_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """aiokafka has thrown away, but counted as read, what stood before a corrupt record."""
    monkeypatch.setattr("bridge.consumer.runner._ERROR_PAUSE", 0)
    runs, client = runner(), Client()
    runs.assigned([TopicPartition("t", number) for number in range(3)])
    record = SimpleNamespace(offset=41, key=b"k", value=b"1")
    runs._desk.add(TopicPartition("t", 0), [record])
    await runs._after_error(client, CorruptRecordException())
    assert client.sought == {0: 42, 1: 7, 2: 3}
    with pytest.raises(KafkaError, match="TopicAuthorizationFailedError"):
        await runs._after_error(client, TopicAuthorizationFailedError())


class GivingUp(Client):
    """Cancels a future that our side waits for, as aiokafka does when its coordinator goes."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = 0
        self.commits = 0

    async def getmany(self, *_: TopicPartition, **__: Any) -> dict[Any, Any]:
        self.answers += 1
        if self.answers == 1:
            raise asyncio.CancelledError
        await asyncio.sleep(0.01)
        return {}

    async def commit(self, _: dict[TopicPartition, int]) -> None:
        self.commits += 1
        raise asyncio.CancelledError

    async def stop(self) -> None:
        raise asyncio.CancelledError


async def test_request_that_the_client_cancels_ends_neither_polling_nor_the_consumer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bridge.consumer.runner._ERROR_PAUSE", 0)
    runs, client = runner(), GivingUp()
    runs._kafka = client
    runs._rules = SimpleNamespace(dead_letters=None)  # type: ignore[assignment] # all that is asked
    runs.assigned([TopicPartition("t", number) for number in range(3)])
    broken: list[int] = []

    async def breaks_once() -> None:
        broken.append(1)
        if len(broken) == 1:
            raise asyncio.CancelledError
        await asyncio.Event().wait()

    runs._more_duties = (breaks_once,)
    going = asyncio.ensure_future(runs._until_stop())
    await until(lambda: client.answers >= 3 and len(broken) == 2, "both go on")
    assert not going.done()
    runs._desk.partitions[0].position = 5
    await runs._commit()
    assert client.commits == 1
    runs.stop()
    assert await going is None
    await runs._end(client)

    task = asyncio.ensure_future(runs._poll_forever())
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
