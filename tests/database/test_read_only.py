"""A server that does not write is as good as lost: the relay looks for the primary, and says so."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

import psycopg
import pytest

from bridge.database.migrations import Migrator
from bridge.database.session import ConnectionLost, Session
from bridge.errors import DatabaseError
from tests.database.standby import standby_of
from tests.fixtures.postgres import on_one_server
from tests.fixtures.relays import Outbox, assert_database_told_once, assert_places_hold, ids_of

if TYPE_CHECKING:
    from pathlib import Path

    from bridge.local.postgres import LocalPostgres
    from tests.fixtures.cli import RunCliFunction
    from tests.fixtures.kafka import ConsumeFunction, NewTopicFunction
    from tests.fixtures.relays import StartRelayFunction

pytestmark = on_one_server


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


def test_a_relay_follows_the_primary_through_a_failover(
    *,
    own_postgres: LocalPostgres,
    start_relay: StartRelayFunction,
    run_cli: RunCliFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
    tmp_path: Path,
) -> None:
    with psycopg.connect(own_postgres.url, autocommit=True) as connection:
        Migrator(connection).up()
    topic = new_topic()
    outbox = Outbox(own_postgres.url)
    with standby_of(own_postgres, tmp_path, signal.SIGINT) as standby:
        # It names the standby first, which must be passed over.
        both = standby.url_of_both
        relay = start_relay(env={"OUTBOX_BRIDGE_DATABASE_URL": both}, relay_settle_interval=0.5)
        outbox.add(500, topic)
        consume(topic, count=500)
        with pytest.raises(DatabaseError, match=r"standby.*read-only.*primary"):
            Session(standby.url, schema="public", stage="x", relay_name="r", lock_timeout=1).open()
        # People may look at a standby.
        status = run_cli("status", "--json", env={"OUTBOX_BRIDGE_DATABASE_URL": standby.url})
        assert '"SENT"' in status.stdout
        examined = run_cli(
            *("doctor", "database", "wake-up", "replication-slots"),
            env={"OUTBOX_BRIDGE_DATABASE_URL": standby.url},
            check=False,
        )
        assert examined.returncode == 1
        assert "is a standby, which is read-only" in examined.stdout
        assert "nobody can listen here" in examined.stdout
        standby.catch_up()

        outbox.close()
        own_postgres.stop("immediate")
        # Whoever wrote the reason: the server that is gone, or the one that does not write.
        relay.wait_for_event("database lost")
        standby.promote()

        outbox = Outbox(standby.url)
        outbox.add(100, topic, prefix="after")
        rows = outbox.wait_all_sent()
        assert_places_hold(rows, consume(topic))
        assert_database_told_once(relay)
        report = relay.stop()
        # What was acknowledged before and not yet written was kept and written to the new primary.
        assert sorted(ids_of(consume(topic))) == [row.outbox_id for row in rows]
        assert report["lost_leases"] == 0
        outbox.assert_nothing_is_left_behind()
        outbox.close()
