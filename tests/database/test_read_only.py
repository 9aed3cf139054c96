"""A server that does not write is as good as lost: the relay looks for the primary, and says so."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from bridge.database.migrations import Migrator
from bridge.database.session import ConnectionLost, Session
from bridge.errors import DatabaseError
from bridge.local.postgres import LocalPostgres
from tests.database.standby import rejoin, standby_of
from tests.fixtures.postgres import on_one_server
from tests.fixtures.relays import PATIENCE, Outbox, assert_places_hold, ids_of
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.database.standby import Standby
    from tests.fixtures.cli import RunCliFunction
    from tests.fixtures.kafka import ConsumeFunction, KafkaBroker, NewTopicFunction
    from tests.fixtures.postgres import PostgresServer
    from tests.fixtures.relays import StartRelayFunction

pytestmark = on_one_server

ENQUEUE = "select outbox_enqueue(%s, 'order.created', %s, '{}')"


def test_a_session_that_turns_read_only_is_given_up_and_opened_anew(database_url: str) -> None:
    session = Session(
        database_url, schema="public", stage="settle", relay_name="r", lock_timeout=0.1
    )
    session.open()
    session.connection.execute("set default_transaction_read_only = on")
    beat = {"relay_id": 1, "stopping": False, "has_lock": True, "failing": "{}"}
    for _ in range(2):
        with pytest.raises(ConnectionLost, match=r"read-only.*primary.*name all hosts"):
            session.rows("beat_relay", beat)
        assert session.connection.closed
        assert session.reopen(threading.Event())
        assert session.rows("beat_relay", beat) == []
        session.connection.execute("set default_transaction_read_only = on")
    session.close()


@pytest.fixture
def first_server(postgres: PostgresServer) -> Iterator[LocalPostgres]:
    """A migrated server for this test alone, which can be rewound."""
    programs = postgres.local.programs if postgres.local else None
    settings = {"wal_log_hints": "on", "wal_keep_size": "256MB"}
    with LocalPostgres(programs=programs, durable=False, settings=settings) as local:
        with psycopg.connect(local.url, autocommit=True) as connection:
            Migrator(connection).up()
            for name, value in settings.items():
                # In its own file too: pg_rewind lets it recover without our command line.
                connection.execute(f"alter system set {name} = '{value}'".encode())
        yield local


@pytest.mark.timeout(300)
def test_a_relay_follows_the_primary_through_a_failover_and_back(
    *,
    first_server: LocalPostgres,
    kafka: KafkaBroker,
    start_relay: StartRelayFunction,
    run_cli: RunCliFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
    tmp_path: Path,
) -> None:
    topic = new_topic()
    outbox = Outbox(first_server.url)
    data = Path(outbox.value("show data_directory"))
    with standby_of(first_server, tmp_path, signal.SIGINT) as second_server:
        # It names the standby first, which must be passed over.
        both = second_server.url_of_both
        relay = start_relay(env={"OUTBOX_BRIDGE_DATABASE_URL": both}, relay_settle_interval=0.5)
        second_server.make_synchronous()
        outbox.add(500, topic)
        consume(topic, count=500)
        assert_people_may_look_at(second_server, run_cli)
        outbox.close()
        first_server.stop("immediate")
        # Whoever wrote the reason: the server that is gone, or the one that does not write.
        relay.wait_for_event("database lost")
        second_server.promote()

        outbox = Outbox(second_server.url)
        outbox.add(100, topic, prefix="after")
        rows = outbox.wait_all_sent()
        relay.wait_for_event("database back")
        # What was acknowledged before and not yet written was kept and written to the new primary.
        assert_places_hold(rows, consume(topic))
        assert sorted(ids_of(consume(topic))) == [row.outbox_id for row in rows]

        with rows_arriving(both, topic) as arrived:
            first_again = rejoin(first_server, data, second_server, tmp_path)
            first_again.make_synchronous()
            with frozen(kafka):
                new = outbox.add(50, topic, prefix="flight")
                # Where that took long the relay has noticed, and claims no more beside what it has.
                wait_until(
                    lambda: (
                        {row.status for row in outbox.rows(new)} != {"PENDING"}
                        or relay.events("destination fails")
                    ),
                    "some are in flight",
                    PATIENCE,
                )
                in_flight = {row.outbox_id for row in outbox.rows() if row.status == "PROCESSING"}
                # So that the answers have reached the relay, or Kafka would wait for the database.
                outbox.wait_at_rest(relay.name)
                outbox.close()
                second_server.stop(signal.SIGQUIT)
                wait_until(
                    lambda: len(relay.events("database lost")) == 2, "it is lost again", PATIENCE
                )
            # Their acknowledgements come while no server takes them down.
            wait_until(lambda: in_flight <= set(ids_of(consume(topic))), "Kafka has them", PATIENCE)
            first_again.promote()
            before = len(arrived)
            wait_until(lambda: len(arrived) > before + 50, "rows arrive again", PATIENCE)
        outbox = Outbox(first_server.url)
        rows = outbox.wait_all_sent()
        report = relay.stop()
        records = consume(topic)
        assert {*arrived} <= {row.message_key for row in rows}
        assert len(rows) == 500 + 100 + 50 + len(arrived)
        assert_places_hold(rows, records)
        assert sorted(ids_of(records)) == [row.outbox_id for row in rows]
        assert {row.retry_count for row in rows} == {0}
        assert report["lost_leases"] == 0
        events = [line["event"].partition(",")[0] for line in relay.events("database")]
        assert events == ["database lost", "database back"] * 2
        # Nothing else is told again and again either.
        assert max(Counter(line["event"] for line in relay.log).values()) == 2
        outbox.assert_nothing_is_left_behind()
        outbox.close()


def assert_people_may_look_at(standby: Standby, run_cli: RunCliFunction) -> None:
    with pytest.raises(DatabaseError, match=r"standby.*read-only.*primary"):
        Session(standby.url, schema="public", stage="x", relay_name="r", lock_timeout=1).open()
    env = {"OUTBOX_BRIDGE_DATABASE_URL": standby.url}
    assert '"SENT"' in run_cli("status", "--json", env=env).stdout
    examined = run_cli(
        *("doctor", "database", "wake-up", "replication-slots"), env=env, check=False
    )
    assert examined.returncode == 1
    assert "is a standby, which is read-only" in examined.stdout
    assert "nobody can listen here" in examined.stdout


@contextmanager
def frozen(kafka: KafkaBroker) -> Iterator[None]:
    """What is sent meanwhile stays in flight; the mock cannot be frozen."""
    if kafka.local is None:
        yield
        return
    kafka.local.suspend()
    try:
        yield
    finally:
        kafka.local.resume()


@contextmanager
def rows_arriving(url: str, topic: str) -> Iterator[list[str]]:
    """Enqueue one row after the other on whichever server is the primary; yields the keys so far.

    After an error nobody knows whether the commit took place: the same key is enqueued again.
    """
    committed: list[str] = []
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            with (
                suppress(psycopg.OperationalError),
                psycopg.connect(
                    url, autocommit=True, connect_timeout=5, target_session_attrs="read-write"
                ) as connection,
            ):
                while not stop.wait(0.02):
                    key = f"arrived-{len(committed)}"
                    connection.execute(ENQUEUE, [key, topic])
                    committed.append(key)
            stop.wait(0.1)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield committed
    finally:
        stop.set()
        writer.join()
