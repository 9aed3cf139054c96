"""Promise 7: rows of a killed, frozen or hung relay move on, uncharged.

What is slow to repeat runs on the first server only; rescue itself runs on each.
"""

from __future__ import annotations

import signal
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg

from tests.fixtures.postgres import on_one_server
from tests.fixtures.relays import FAST_LEASE, PATIENCE, assert_places_hold, ids_of
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.fixtures.kafka import ConsumeFunction, NewTopicFunction
    from tests.fixtures.relays import Outbox, Row, StartRelayFunction

NEVER_SETTLES: dict[str, Any] = {"relay_settle_interval": 3600}


def assert_rescued_uncharged(rows: Sequence[Row]) -> None:
    for row in rows:
        assert row.last_error_code == "STUCK_PROCESSING"
        assert row.last_error_msg == "Recovered from PROCESSING timeout"
        assert row.retry_count == 0
        assert row.claim_count == 2


def test_killed_relays_rows_move_on_long_before_the_lease(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
) -> None:
    topic = new_topic()
    ids = outbox.add(40, topic) + outbox.add(10, topic, prefix="o", ordering_key="k")
    victim = start_relay(**NEVER_SETTLES)
    outbox.wait_for("PROCESSING", ids)
    other = start_relay()
    victim.process.kill()

    # The lease is 120 s and the stuck time-out 30 min: neither can have done it.
    rows = outbox.wait_for("SENT", ids, timeout=60)

    assert_rescued_uncharged(rows)
    assert_places_hold(rows, consume(topic))
    assert other.wait_for_event("relay is gone")["why"] == "killed"
    wait_until(lambda: outbox.relay_names() == {other.name}, "the dead one is buried", PATIENCE)
    assert other.stop()["rescued"] == 50
    outbox.assert_nothing_is_left_behind()


def test_frozen_relays_rows_move_on_and_its_late_reports_do_no_harm(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
) -> None:
    topic = new_topic()
    ids = outbox.add(40, topic)
    # Acknowledged, and unsettled for long enough to be frozen in between.
    frozen = start_relay(**FAST_LEASE, relay_settle_interval=10)
    consume(topic, count=40, timeout=60)
    frozen.process.send(signal.SIGSTOP)
    assert {row.status for row in outbox.rows(ids)} == {"PROCESSING"}
    other = start_relay(**FAST_LEASE)

    rows = outbox.wait_for("SENT", ids)

    assert_rescued_uncharged(rows)
    assert other.wait_for_event("relay is gone")["why"] == "frozen"
    frozen.process.send(signal.SIGCONT)
    wait_until(
        lambda: sum(line["rows"] for line in frozen.events("lost leases")) == 40,
        "it has heard of every acknowledgement",
        PATIENCE,
    )
    assert [replace(row, wait_seconds=0) for row in outbox.rows(ids)] == [
        replace(row, wait_seconds=0) for row in rows
    ]
    records = consume(topic)
    assert_places_hold(outbox.rows(ids), records)
    assert set(Counter(ids_of(records)).values()) == {2}
    # It goes on under a new identity.
    wait_until(lambda: outbox.relay_names() == {frozen.name, other.name}, "both are registered")
    other.stop()
    more = outbox.add(10, topic, prefix="more")
    outbox.wait_for("SENT", more)
    assert frozen.stop()["lost_leases"] == 40
    outbox.assert_nothing_is_left_behind()


@on_one_server
def test_late_acknowledgement_counts_while_nobody_else_has_claimed_the_row(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
) -> None:
    topic = new_topic()
    (outbox_id,) = outbox.add(1, topic)
    relay = start_relay(relay_settle_interval=5)
    outbox.wait_for("PROCESSING", [outbox_id])
    # As if rescued by a relay, and not due before the acknowledgement is written.
    outbox.execute("set outbox_bridge.session = 'relay'")
    outbox.execute("delete from app_outbox_claim")
    outbox.execute(
        "update app_outbox set status = 'PENDING', next_run_at = now() + interval '1 hour'"
    )

    (row,) = outbox.wait_for("SENT", [outbox_id])

    assert row.claim_count == 1
    assert_places_hold([row], consume(topic))
    assert relay.stop()["lost_leases"] == 0


@on_one_server
def test_late_acknowledgement_of_a_cancelled_row_is_a_lost_lease(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
) -> None:
    """langwatch#7037: an update that matched no row passed for success."""
    topic = new_topic()
    ids = outbox.add(3, topic)
    relay = start_relay(relay_settle_interval=5)
    outbox.wait_for("PROCESSING", ids)
    outbox.execute("update app_outbox set status = 'CANCELLED' where outbox_id = %s", ids[0])
    outbox.execute("delete from app_outbox where outbox_id = %s", ids[1])

    outbox.wait_for("SENT", ids[2:])

    assert outbox.row(ids[0]).status == "CANCELLED"
    assert relay.stop()["lost_leases"] == 2
    outbox.assert_nothing_is_left_behind()


@on_one_server
def test_hung_relays_rows_move_on_although_its_heart_beats(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
) -> None:
    topic = new_topic()
    ids = outbox.add(40, topic)
    # Full with these rows, so that it cannot claim them again itself.
    full: dict[str, Any] = {"relay_batch_rows": 40, "relay_max_inflight_rows": 80}
    hung = start_relay(**FAST_LEASE, **NEVER_SETTLES, **full, relay_stuck_timeout=8)
    outbox.wait_for("PROCESSING", ids)
    start_relay(**FAST_LEASE, relay_stuck_timeout=8)

    rows = outbox.wait_for("SENT", ids)

    assert_rescued_uncharged(rows)
    assert_places_hold(rows, consume(topic))
    assert hung.name in outbox.relay_names()
    assert hung.process.running


@on_one_server
def test_a_locked_row_does_not_hold_up_the_rescue_of_the_others(
    outbox: Outbox, start_relay: StartRelayFunction, new_topic: NewTopicFunction
) -> None:
    topic = new_topic()
    ids = outbox.add(20, topic)
    victim = start_relay(**NEVER_SETTLES)
    outbox.wait_for("PROCESSING", ids)
    with psycopg.connect(outbox.url) as operator:
        operator.execute("select from app_outbox where outbox_id = %s for update", [ids[0]])
        victim.process.kill()
        start_relay()
        outbox.wait_for("SENT", ids[1:])
        assert outbox.row(ids[0]).status == "PROCESSING"
    (row,) = outbox.wait_for("SENT", ids[:1])
    assert_rescued_uncharged([row])
    assert outbox.query("select * from app_outbox_claim") == []


@on_one_server
def test_a_run_of_once_takes_up_what_a_killed_run_of_once_left(
    outbox: Outbox, start_relay: StartRelayFunction, new_topic: NewTopicFunction
) -> None:
    """Under cron no relay lives for long, so each run must look after the dead itself."""
    topic = new_topic()
    ids = outbox.add(20, topic)
    victim = start_relay("--once", **NEVER_SETTLES)
    outbox.wait_for("PROCESSING", ids)
    victim.process.kill()

    once = start_relay("--once", wait=False)

    assert once.process.wait(PATIENCE) == 0
    assert_rescued_uncharged(outbox.wait_for("SENT", ids, timeout=1))


@on_one_server
def test_a_run_of_once_sends_ordered_rows_whose_lanes_a_killed_relay_still_owns(
    outbox: Outbox, start_relay: StartRelayFunction, new_topic: NewTopicFunction
) -> None:
    topic = new_topic()
    first = outbox.add(5, topic, ordering_key="a")
    victim = start_relay()
    outbox.wait_for("SENT", first)
    wait_until(
        lambda: outbox.query("select * from app_outbox_claim") == [], "the victim owns lanes only"
    )
    victim.process.kill()
    assert outbox.value("select count(*) from app_outbox_lane where relay_id is not null") > 0
    rows = outbox.add(5, topic, prefix="later", ordering_key="a")

    once = start_relay("--once", wait=False)

    assert once.process.wait(PATIENCE) == 0
    assert [row.status for row in outbox.rows(rows)] == ["SENT"] * 5
