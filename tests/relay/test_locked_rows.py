"""Somebody's open transaction on one row delays no other row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg

from tests.fixtures.postgres import on_one_server
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from tests.fixtures.kafka import ConsumeFunction, NewTopicFunction
    from tests.fixtures.relays import Outbox, StartRelayFunction

LOCK = "select from app_outbox where outbox_id = any(%s) for update"


def test_a_locked_pending_row_waits_alone_and_is_sent_when_the_lock_is_gone(
    outbox: Outbox, start_relay: StartRelayFunction, new_topic: NewTopicFunction
) -> None:
    topic = new_topic()
    ids = outbox.add(300, topic)
    held, free = ids[::100], [outbox_id for outbox_id in ids if outbox_id not in ids[::100]]
    with psycopg.connect(outbox.url) as operator:
        operator.execute(LOCK, [held])
        start_relay()
        outbox.wait_for("SENT", free)
        # New rows flow past it, too, for as long as it is locked.
        for number in range(5):
            outbox.wait_for("SENT", outbox.add(20, topic, prefix=f"more-{number}"))
        assert {row.status for row in outbox.rows(held)} == {"PENDING"}
    outbox.wait_for("SENT", held)


@on_one_server
def test_rows_of_a_locked_rows_key_wait_and_other_keys_flow(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
) -> None:
    topic = new_topic()
    slow = outbox.add(10, topic, prefix="slow", ordering_key="slow")
    other = outbox.add(10, topic, prefix="other", ordering_key="other")
    with psycopg.connect(outbox.url) as operator:
        operator.execute(LOCK, [slow[4:5]])
        start_relay()
        outbox.wait_for("SENT", other + slow[:4])
        assert {row.status for row in outbox.rows(slow[4:])} == {"PENDING"}
    outbox.wait_for("SENT", slow)
    sent = [record for record in consume(topic) if record.key == b"slow"]
    assert [int(record.headers["outbox-id"]) for record in sent] == slow


def test_a_row_locked_at_settle_time_waits_alone(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
) -> None:
    topic = new_topic()
    ids = outbox.add(100, topic)
    relay = start_relay(relay_settle_interval=5)
    outbox.wait_for("PROCESSING", ids)
    with psycopg.connect(outbox.url) as operator:
        operator.execute(LOCK, [ids[50:52]])
        outbox.wait_for("SENT", ids[:50] + ids[52:])
        more = outbox.add(20, topic, prefix="more")
        outbox.wait_for("SENT", more)
        assert {row.status for row in outbox.rows(ids[50:52])} == {"PROCESSING"}
    outbox.wait_for("SENT", ids)
    assert len(consume(topic)) == 120
    assert relay.stop()["lost_leases"] == 0
    outbox.assert_nothing_is_left_behind()


@on_one_server
def test_a_locked_claim_delays_no_row_and_is_deleted_when_the_lock_is_gone(
    outbox: Outbox, start_relay: StartRelayFunction, new_topic: NewTopicFunction
) -> None:
    topic = new_topic()
    relay = start_relay(relay_settle_interval=5)
    ids = outbox.add(50, topic)
    outbox.wait_for("PROCESSING", ids)
    with psycopg.connect(outbox.url) as operator:
        operator.execute("select from app_outbox_claim for update")
        outbox.wait_for("SENT", ids)
    wait_until(lambda: not outbox.query("select from app_outbox_claim"), "no claim is left")
    relay.stop()
    outbox.assert_nothing_is_left_behind()


@on_one_server
def test_a_locked_failure_waits_alone(
    outbox: Outbox, start_relay: StartRelayFunction, new_topic: NewTopicFunction
) -> None:
    topic = new_topic()
    bad = outbox.add(10, "no topic", prefix="bad")
    relay = start_relay(relay_settle_interval=5)
    outbox.wait_for("PROCESSING", bad)
    with psycopg.connect(outbox.url) as operator:
        operator.execute(LOCK, [bad[:1]])
        outbox.wait_for("FAILED", bad[1:])
        outbox.wait_for("SENT", outbox.add(5, topic))
        assert outbox.row(bad[0]).status == "PROCESSING"
    outbox.wait_for("FAILED", bad)
    assert relay.stop()["failed"] == 10
