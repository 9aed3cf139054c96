"""Faults that other systems had with their database, made here; named by repository and number.

Others have their test where the matter is tested: taskbroker#778, quill-router#355, langwatch#7037,
pgqueuer#430, faststream-outbox, watermill#311, graphile/worker#541 and pg-boss#850.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import psycopg
import pytest

from bridge.local.postgres_programs import PostgresPrograms
from tests.fixtures.postgres import on_one_server
from tests.fixtures.relays import FAST_LEASE, PATIENCE, Outbox, assert_places_hold
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.cli import RunCliFunction
    from tests.fixtures.kafka import ConsumeFunction, NewTopicFunction
    from tests.fixtures.postgres import PostgresServer
    from tests.fixtures.relays import RunRelayFunction, StartRelayFunction

pytestmark = on_one_server


@pytest.mark.parametrize("is_pruned", [True, False], ids=["row-pruned", "row-there"])
def test_a_dead_relays_rows_move_on_although_another_of_its_name_and_host_has_come(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    *,
    is_pruned: bool,
) -> None:
    """procrastinate#1518, oban#862: jobs of a worker whose heartbeat row was pruned stayed stuck.

    Nobody looked for them: the worker was unknown, or its name was in use again on the same host.
    """
    topic = new_topic()
    ids = outbox.add(20, topic) + outbox.add(5, topic, prefix="o", ordering_key="k")
    dead = start_relay(name="node-1", relay_settle_interval=3600)
    outbox.wait_for("PROCESSING", ids)
    dead.process.kill()
    if is_pruned:
        outbox.execute("delete from app_outbox_relay")

    again = start_relay(name="node-1")

    rows = outbox.wait_for("SENT", ids)
    assert {row.last_error_code for row in rows} == {"STUCK_PROCESSING"}
    assert again.stop()["rescued"] == 25
    outbox.assert_nothing_is_left_behind()


def test_a_relay_holds_no_snapshot_between_its_statements(
    outbox: Outbox, start_relay: StartRelayFunction, new_topic: NewTopicFunction
) -> None:
    """river#59: autovacuum never got to the jobs table, which grew until queries crawled.

    What keeps it from its work is an old snapshot; a relay that works or sleeps has none.
    """
    relay = start_relay(relay_batch_rows=20, relay_sleep=0.5)
    topic = new_topic()
    for number in range(20):
        outbox.add(100, topic, prefix=f"m{number}")
        # One that is only late ends; one that is held does not.
        wait_until(
            lambda: (
                outbox.query(
                    "select 1 from pg_stat_activity where application_name like %s "
                    "and xact_start < now() - interval '2 s'",
                    f"outbox-bridge/{relay.name}/%",
                )
                == []
            ),
            "no transaction is older than two seconds",
            PATIENCE,
        )
    outbox.wait_all_sent()
    wait_until(
        lambda: (
            outbox.query(
                "select 1 from pg_stat_activity where application_name like %s "
                "and (state <> 'idle' or backend_xmin is not null)",
                f"outbox-bridge/{relay.name}/%",
            )
            == []
        ),
        "every session is idle, without a snapshot",
        PATIENCE,
    )

    def is_clean() -> bool:
        outbox.execute("vacuum app_outbox_queue")
        outbox.execute("analyze app_outbox_queue")
        left: int = outbox.value(
            "select n_dead_tup from pg_stat_user_tables where relname = 'app_outbox_queue'"
        )
        return left == 0

    # Again where a session counts what it did only afterwards, or autovacuum holds a snapshot.
    wait_until(is_clean, "no dead entry is left", PATIENCE)
    relay.stop()


def test_rows_of_a_dump_are_sent_from_the_server_it_is_restored_to(
    *,
    outbox: Outbox,
    postgres: PostgresServer,
    run_relay: RunRelayFunction,
    run_cli: RunCliFunction,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
    tmp_path: Path,
) -> None:
    """watermill#576: transaction ids kept as a position mean nothing on another server.

    Rows were waiting, in flight, and sent when the dump was made.
    """
    topic = new_topic()
    sent = outbox.add(20, topic, prefix="sent")
    run_relay()
    in_flight = outbox.add(20, topic, prefix="flight")
    relay = start_relay(**FAST_LEASE, relay_settle_interval=3600)
    outbox.wait_for("PROCESSING", in_flight)
    programs = PostgresPrograms.embedded()
    waiting = outbox.add(20, f"{topic}-other", prefix="later", next_run_at="infinity")
    dump = tmp_path / "dump.sql"
    subprocess.run(
        [programs.program("pg_dump"), "--no-owner", f"--file={dump}", outbox.url], check=True
    )
    relay.process.kill()

    url = postgres.create_database()
    subprocess.run(
        [programs.program("psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", str(dump), url],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    env = {"OUTBOX_BRIDGE_DATABASE_URL": url}
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "update app_outbox set destination = %s, next_run_at = now() where outbox_id = any(%s)",
            [topic, waiting],
        )
    run_cli("repair", env=env)
    fresh = start_relay(env=env, **FAST_LEASE)
    restored = Outbox(url)
    rows = restored.wait_all_sent()
    fresh.stop()

    assert [row.outbox_id for row in rows] == sent + in_flight + waiting
    assert_places_hold(rows, consume(topic))
    restored.assert_nothing_is_left_behind()
    restored.close()
    postgres.drop_database(url)
