"""A relay outlives the end of each of its connections, and of the server; nothing is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import psycopg
import pytest

from bridge.database.migrations import Migrator
from bridge.database.session import Session
from bridge.settings import RelaySettings
from tests.fixtures.postgres import on_one_server
from tests.fixtures.relays import (
    PATIENCE,
    RANDOM_TEXT,
    Outbox,
    assert_database_told_once,
    assert_places_hold,
    ids_of,
)
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from bridge.local.postgres import LocalPostgres
    from tests.fixtures.kafka import ConsumeFunction, KafkaBroker, NewTopicFunction
    from tests.fixtures.relays import StartRelayFunction

STAGES = ("claim", "settle", "publish", "maintain", "heartbeat")


@on_one_server
def test_the_sessions_of_a_relay_say_who_does_what(
    outbox: Outbox, start_relay: StartRelayFunction, kafka: KafkaBroker
) -> None:
    start_relay(name="eu-1")
    assert set(outbox.sessions("eu-1")) == set(STAGES)


@on_one_server
def test_the_server_ends_a_session_left_amid_a_transaction_before_the_lease_is_over(
    database_url: str,
) -> None:
    """A frozen relay, or one whose host is gone, must not hold row locks for hours."""
    session = Session(
        database_url, schema="public", stage="claim", relay_name="frozen", lock_timeout=0.0001
    )
    session.open()
    shown = session.connection.execute(
        "select name, setting::int from pg_settings where name = any(%s)",
        [["idle_in_transaction_session_timeout", "lock_timeout", "tcp_keepalives_idle"]],
    ).fetchall()
    session.close()
    lease = RelaySettings().lease
    settings = dict(shown)
    assert 0 < settings["idle_in_transaction_session_timeout"] < lease * 1000
    assert 0 < settings["tcp_keepalives_idle"] < lease
    # Rounded down to 0 it would mean: wait for ever.
    assert settings["lock_timeout"] == 1


@pytest.mark.parametrize("how", ["pg_terminate_backend", "pg_cancel_backend"])
def test_each_session_may_be_ended_while_rows_flow(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
    how: str,
) -> None:
    topic = new_topic()
    relay = start_relay(relay_batch_rows=50, relay_inline_payload_bytes=1000)
    beside = start_relay(relay_batch_rows=50, relay_inline_payload_bytes=1000)
    # Incompressible and over the limit: read one by one through the session "publish".
    large = outbox.value(RANDOM_TEXT, 3000)
    for number, stage in enumerate(STAGES * 2):
        outbox.add(200, topic, prefix=f"a{number}")
        outbox.add(20, topic, prefix=f"large{number}", payload_json=large)
        outbox.add(50, topic, prefix=f"o{number}", ordering_key=f"k{number}")
        # The session "publish" comes back with the next large payload, the others by themselves.
        wait_until(
            lambda stage=stage: stage in ("publish", *outbox.sessions(relay.name)),  # type: ignore[misc] # bound per turn
            f"session {stage} is there",
            PATIENCE,
        )
        outbox.query(f"select {how}(%s)", outbox.sessions(relay.name).get(stage))

    rows = outbox.wait_all_sent()

    records = consume(topic)
    assert_places_hold(rows, records)
    # Its heart came back before anybody took its claims: no row was sent twice.
    assert sorted(ids_of(records)) == [row.outbox_id for row in rows]
    assert relay.process.running
    assert relay.stop()["lost_leases"] == 0
    beside.stop()
    outbox.assert_nothing_is_left_behind()


@on_one_server
@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_both_relays_outlive_a_restart_of_the_server(
    own_postgres: LocalPostgres,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
    mode: Literal["fast", "immediate"],
) -> None:
    with psycopg.connect(own_postgres.url, autocommit=True) as connection:
        Migrator(connection).up()
    topic = new_topic()
    env = {"OUTBOX_BRIDGE_DATABASE_URL": own_postgres.url}
    outbox = Outbox(own_postgres.url)
    outbox.add(2000, topic)
    # Outcomes wait for half a second, so there are some when the server goes.
    relays = [
        start_relay(env=env, relay_batch_rows=50, relay_settle_interval=0.5) for _ in range(2)
    ]
    wait_until(lambda: outbox.counts().get("SENT", 0) > 200, "some rows are SENT", PATIENCE)
    outbox.close()

    own_postgres.restart(mode)

    outbox = Outbox(own_postgres.url)
    outbox.add(500, topic, prefix="after")
    rows = outbox.wait_all_sent()
    records = consume(topic)
    assert_places_hold(rows, records)
    for relay in relays:
        assert_database_told_once(relay)
        assert relay.stop()["lost_leases"] == 0
    # Outcomes were kept and written afterwards; each relay took its own claims up again.
    assert sorted(ids_of(records)) == [row.outbox_id for row in rows]
    outbox.assert_nothing_is_left_behind()
    outbox.close()


@on_one_server
def test_a_server_that_refuses_to_write_is_told_once_and_loses_nothing(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
) -> None:
    """A full disk, for example: reading works, writing does not, each second again."""
    topic = new_topic()
    relay = start_relay(relay_settle_interval=0.5)
    ids = outbox.add(100, topic)
    consume(topic, count=100)
    outbox.execute(
        """
        create function disk_is_full() returns trigger language plpgsql as
        $$ begin raise exception 'could not extend file' using errcode = 'disk_full'; end $$;
        create trigger disk_is_full before update on app_outbox
        execute function disk_is_full();
        """
    )
    outbox.add(100, topic, prefix="more")
    told = relay.wait_for_event("database refuses statements")
    assert "could not extend file" in told["reason"]
    wait_until(
        lambda: outbox.value(
            "select max(heartbeat_at) > now() - interval '1 s' and "
            "max(heartbeat_at - started_at) > interval '10 s' from app_outbox_relay"
        ),
        "two heartbeats have passed",
        PATIENCE,
    )
    outbox.execute("drop function disk_is_full cascade")
    rows = outbox.wait_all_sent()
    relay.wait_for_event("database accepts statements again")
    assert len(relay.events("database")) == 2
    assert ids == [row.outbox_id for row in rows][:100]
    assert_places_hold(rows, consume(topic))
    relay.stop()
    outbox.assert_nothing_is_left_behind()
