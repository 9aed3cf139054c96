"""Consumers of the tests: a database with an inbox, records as a relay writes them."""

from __future__ import annotations

import asyncio
import itertools
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import psycopg
import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer, TopicPartition

from bridge.consumer import Consumer, Inbox
from bridge.database.migration_sets import INBOX
from bridge.database.migrations import Migrator
from tests.fixtures.kafka import silent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from tests.fixtures.kafka import KafkaBroker
    from tests.fixtures.postgres import PostgresServer

PATIENCE = 60.0
_ids = itertools.count(1)


@dataclass
class Sent:
    """A record as a relay writes it; `key` is the ordering key."""

    message_key: str
    payload: Any = None
    event_type: str = "order.created"
    key: str | None = None
    outbox_id: int = field(default_factory=lambda: next(_ids))
    partition: int | None = None
    headers: dict[str, str | bytes] = field(default_factory=dict)
    tombstone: bool = False
    raw: bytes | None = None

    @property
    def value(self) -> bytes | None:
        if self.raw is not None:
            return self.raw
        return None if self.tombstone else json.dumps(self.payload).encode()


class ProduceFunction(Protocol):
    def __call__(self, topic: str, records: Iterable[Sent]) -> None: ...


@pytest.fixture
def produce(kafka: KafkaBroker) -> ProduceFunction:
    """Write records into a topic, in order, and wait until the broker has them."""

    def write(topic: str, records: Iterable[Sent]) -> None:
        write_records(kafka.bootstrap_servers, topic, records)

    return write


def write_records(bootstrap_servers: str, topic: str, records: Iterable[Sent]) -> None:
    """Write records into a topic, in order, and wait until the broker has them."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 1_000_000,
        },
        logger=silent,
    )
    for sent in records:
        headers: dict[str, str | bytes | None] = {
            "outbox-id": str(sent.outbox_id),
            "event-type": sent.event_type,
            "idempotency-key": sent.message_key,
            "content-type": "application/json",
            "outbox-attempt": "1",
            **sent.headers,
        }
        where: dict[str, Any] = {} if sent.partition is None else {"partition": sent.partition}
        producer.produce(
            topic,
            value=sent.value,
            key=sent.key or sent.message_key,
            headers=headers,
            **where,
        )
    assert producer.flush(PATIENCE) == 0


@pytest.fixture
def shop_url(postgres: PostgresServer) -> Iterator[str]:
    """The consumer's own database: an inbox, and a table of effects."""
    url = postgres.create_database()
    with psycopg.connect(url, autocommit=True) as conn:
        Migrator(conn, chosen=INBOX).up()
        conn.execute(
            "create table effect (effect_id bigint generated always as identity, "
            "message_key text not null, ordering_key text, number integer, consumer text)"
        )
    yield url
    postgres.drop_database(url)


class Shop:
    """A connection in autocommit to the consumer's database."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.conn = psycopg.connect(url, autocommit=True)

    def query(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self.conn.execute(statement.encode(), parameters).fetchall()

    def value(self, statement: str, *parameters: Any) -> Any:
        return self.query(statement, *parameters)[0][0]

    def effects(self) -> list[str]:
        """The keys that had an effect, in the order of the effects."""
        return [row[0] for row in self.query("select message_key from effect order by effect_id")]


@pytest.fixture
def shop(shop_url: str) -> Iterator[Shop]:
    opened = Shop(shop_url)
    yield opened
    opened.conn.close()


class NewConsumerFunction(Protocol):
    def __call__(self, *topics: str, **options: Any) -> Consumer: ...


@pytest.fixture
def new_consumer(kafka: KafkaBroker, request: pytest.FixtureRequest) -> NewConsumerFunction:
    """Build a consumer on the test's servers; `inbox=None` for one without database."""

    def build(*topics: str, **options: Any) -> Consumer:
        if "inbox" not in options:
            options["inbox"] = Inbox(request.getfixturevalue("shop_url"))
        return Consumer(
            *topics,
            **{
                "group": f"group-of-{topics[0]}",
                "bootstrap_servers": kafka.bootstrap_servers,
                "commit_interval": 0.05,
                **options,
            },
        )

    return build


@asynccontextmanager
async def running(*consumers: Consumer) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Run consumers beside the test; stopped in good order at the end."""
    tasks = [asyncio.create_task(consumer.serve()) for consumer in consumers]
    try:
        yield tasks
    finally:
        for consumer in consumers:
            consumer.stop()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


async def until(check: Callable[[], Any], what: str) -> Any:
    """Wait until `check` returns something true, while the loop goes on."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE
    while True:
        found = await asyncio.to_thread(check)
        if found:
            return found
        if loop.time() > deadline:
            pytest.fail(f"after {PATIENCE:.0f} s still not: {what}")
        await asyncio.sleep(0.02)


def settled(consumer: Consumer) -> int:
    """How many messages are done with."""
    fates = ("processed", "duplicates", "unhandled", "dead_letters")
    return sum(consumer.counts.get(fate, 0) for fate in fates)


def committed(consumer: Consumer, topic: str) -> dict[int, int]:
    """The offsets of a topic that a consumer has committed, by partition."""
    return {number: done for (name, number), done in consumer.committed.items() if name == topic}


def committed_of(kafka: KafkaBroker, group: str, topic: str) -> int:
    """Return the offset that a group has committed for partition 0."""
    reader = ConfluentConsumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": group}, logger=silent
    )
    try:
        return int(reader.committed([TopicPartition(topic, 0)], 30)[0].offset)
    finally:
        reader.close()
