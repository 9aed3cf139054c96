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
