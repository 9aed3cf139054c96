"""A sleeping relay is woken by a commit; polling finds what sends no notification."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg

from tests.fixtures.postgres import on_one_server
from tests.fixtures.relays import PATIENCE
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from tests.fixtures.kafka import NewTopicFunction
    from tests.fixtures.relays import Outbox, StartRelayFunction

# Slow to repeat; advisory locks and NOTIFY are the same in every version.
pytestmark = on_one_server

INSERT = (
    "insert into app_outbox (message_key, event_type, destination, payload_json) "
    "values (%s, 'order.created', %s, '{}') returning outbox_id"
)


def wait_until_asleep(outbox: Outbox) -> None:
    """Wait until a relay holds the wake-up lock: only then do commits send notifications."""
    wait_until(
        lambda: outbox.value(
            """
            select exists (
                select from pg_locks as l join pg_stat_activity as a on a.pid = l.pid
                where l.locktype = 'advisory' and l.objsubid = 2 and l.objid = 0
                and a.application_name like '%%/claim' and a.datname = current_database()
                and a.state = 'idle' and a.state_change < now() - interval '0.3 s'
            )
            """
        ),
        "the relay sleeps",
        PATIENCE,
    )


def test_a_commit_wakes_a_relay_that_would_sleep_for_an_hour(
    outbox: Outbox, start_relay: StartRelayFunction, new_topic: NewTopicFunction
) -> None:
    topic = new_topic()
    start_relay(relay_sleep=3600)
    for number in range(3):
        wait_until_asleep(outbox)
        outbox.wait_for("SENT", outbox.add(1, topic, prefix=f"plain-{number}"))
    wait_until_asleep(outbox)
    outbox.wait_for("SENT", outbox.add(1, topic, prefix="ordered", ordering_key="k"))
    wait_until_asleep(outbox)
    (cancelled,) = outbox.add(1, topic, prefix="cancelled", status="CANCELLED")
    outbox.execute("update app_outbox set status = 'PENDING' where outbox_id = %s", cancelled)
    outbox.wait_for("SENT", [cancelled])


def test_a_row_committed_while_the_relay_goes_to_sleep_is_not_overlooked(
    outbox: Outbox, start_relay: StartRelayFunction, new_topic: NewTopicFunction
) -> None:
    """Transactions that begin awake and commit asleep, and the other way round."""
    topic = new_topic()
    start_relay(relay_sleep=3600, relay_busy_window=0.001, relay_busy_poll=0.001)
    with psycopg.connect(outbox.url) as writer:
        for number in range(60):
            row = writer.execute(INSERT, [f"k{number}", topic]).fetchone()
            assert row is not None
            # Open for a varying number of round trips while the relay closes its gate.
            for _ in range(number):
                writer.execute("select 1")
            writer.commit()
            outbox.wait_for("SENT", [row[0]])


def test_a_prepared_transaction_without_notify_is_found_by_polling(
    outbox: Outbox, start_relay: StartRelayFunction, new_topic: NewTopicFunction
) -> None:
    topic = new_topic()
    start_relay(relay_sleep=1)
    wait_until_asleep(outbox)
    with psycopg.connect(outbox.url, autocommit=True) as writer:
        writer.execute("set outbox_bridge.notify = 'off'")
        writer.execute("begin")
        row = writer.execute(INSERT, ["prepared", topic]).fetchone()
        writer.execute("prepare transaction 'outbox-test'")
        # A later row does not wait for it.
        outbox.wait_for("SENT", outbox.add(1, topic))
        writer.execute("commit prepared 'outbox-test'")
    assert row is not None
    outbox.wait_for("SENT", [row[0]])


def test_cancelled_rows_before_a_due_one_do_not_put_the_relay_to_sleep(
    outbox: Outbox, start_relay: StartRelayFunction, new_topic: NewTopicFunction
) -> None:
    """Their queue entries are stale hints; a claim that found only such looks on at once."""
    topic = new_topic()
    outbox.add(3000, topic, prefix="stale")
    outbox.add(3000, topic, prefix="stale-ordered", ordering_key="k")
    outbox.execute("update app_outbox set status = 'CANCELLED'")
    due = outbox.add(1, topic, prefix="due")
    due += outbox.add(1, topic, prefix="due-ordered", ordering_key="k")
    # One claim takes 100 of the 6,000 stale entries; sleeping in between it would take an hour.
    start_relay(relay_sleep=3600, relay_batch_rows=100)
    outbox.wait_for("SENT", due)
