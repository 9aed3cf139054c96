"""What the other tests stand on: databases, topics and the consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
from confluent_kafka import Producer

from bridge.database.migrations import Migrator
from tests.fixtures.kafka import ConsumeFunction, KafkaBroker, NewTopicFunction, silent

if TYPE_CHECKING:
    from tests.fixtures.cli import RunCliFunction
    from tests.fixtures.postgres import PostgresServer


def test_each_test_gets_a_migrated_database_of_its_own(
    postgres: PostgresServer, database_url: str
) -> None:
    with psycopg.connect(database_url) as connection:
        Migrator(connection).verify()
        connection.rollback()
        row = connection.execute("select count(*) from public.app_outbox").fetchone()
        assert row == (0,)
        assert connection.info.server_version // 10_000 == postgres.major


def test_an_empty_database_has_no_table(empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url) as connection:
        found = connection.execute("select to_regclass('public.app_outbox')").fetchone()
    assert found == (None,)


def test_consume_returns_what_was_produced(
    kafka: KafkaBroker, new_topic: NewTopicFunction, consume: ConsumeFunction
) -> None:
    topic = new_topic("orders")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers}, logger=silent)
    for number in range(50):
        producer.produce(topic, key=f"k{number}", value=b"v", headers={"n": str(number)})
    assert producer.flush(20) == 0

    records = consume(topic)

    assert {record.key: record.headers for record in records} == {
        f"k{number}".encode(): {"n": str(number)} for number in range(50)
    }
    assert len(consume(topic, count=50)) == 50


def test_consume_of_an_empty_topic_ends(
    new_topic: NewTopicFunction, consume: ConsumeFunction
) -> None:
    assert consume(new_topic("empty")) == []


def test_the_program_runs_as_a_process(run_cli: RunCliFunction) -> None:
    assert run_cli("--version").stdout.startswith("outbox-bridge ")
