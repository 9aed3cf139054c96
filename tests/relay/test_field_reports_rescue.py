"""Real bugs of comparable systems, made again: rescue and recovery after a crash.

Each docstring names the report and tells the situation in our own words.
"""

from __future__ import annotations

import signal
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any

import psycopg

from tests.fixtures.postgres import on_one_server
from tests.fixtures.relays import FAST_LEASE, PATIENCE, assert_places_hold, ids_of
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from tests.fixtures.kafka import ConsumeFunction, NewTopicFunction
    from tests.fixtures.relays import Outbox, StartRelayFunction

NEVER_SETTLES: dict[str, Any] = {"relay_settle_interval": 3600}


def leave_claim_of_a_dead_relay(outbox: Outbox, ids: list[int], claim_id: object) -> None:
    outbox.execute(
        "insert into app_outbox_claim (claim_id, relay_id, claimed_at, outbox_ids) "
        "values (%s, 987654, now() - interval '2 hours', %s)",
        claim_id,
        ids,
    )


def test_a_completed_row_is_never_turned_back(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
) -> None:
    """riverqueue/river#1302: the rescuer turned a job that had just been completed back.

    It had read the job as running, and wrote its decision after the worker had written its own.
    Here a claim that only the rescuer still knows names rows that are SENT, one of them under the
    very claim that it takes back, one FAILED and one CANCELLED.
    """
    topic = new_topic()
    ids = outbox.add(20, topic)
    relay = start_relay()
    outbox.wait_for("SENT", ids)
    claim_id = outbox.row(ids[0]).claim_id
    outbox.execute("update app_outbox set status = 'FAILED' where outbox_id = %s", ids[1])
    outbox.execute("update app_outbox set status = 'CANCELLED' where outbox_id = %s", ids[2])
    before = [(row.status, row.claim_id, row.retry_count) for row in outbox.rows(ids)]

    leave_claim_of_a_dead_relay(outbox, ids, claim_id)

    wait_until(
        lambda: outbox.query("select * from app_outbox_claim") == [], "it was taken back", PATIENCE
    )
    assert [(row.status, row.claim_id, row.retry_count) for row in outbox.rows(ids)] == before
    assert len(consume(topic)) == 20
    assert relay.stop()["rescued"] == 0


@on_one_server
def test_a_settle_that_waits_for_the_rescuers_lock_is_not_undone_by_it(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
) -> None:
    """riverqueue/river#1302, the other way round: the rescue commits while the settle waits.

    The acknowledgement is true whatever the rescuer believed: the row is SENT, and once only.
    """
    topic = new_topic()
    ids = outbox.add(10, topic)
    relay = start_relay(relay_settle_interval=5)
    outbox.wait_for("PROCESSING", ids)
    with psycopg.connect(outbox.url) as rescuer:
        # As the rescue writes it, and not yet committed when the settle comes.
        rescuer.execute("set outbox_bridge.session = 'relay'")
        rescuer.execute(
            "update app_outbox set status = 'PENDING', locked_by = null, "
            "last_error_code = 'STUCK_PROCESSING', next_run_at = now() + interval '1 minute' "
            "where outbox_id = any(%s)",
            [ids],
        )
        wait_until(
            lambda: outbox.value(
                "select count(*) from pg_stat_activity where wait_event_type = 'Lock' "
                "and application_name like 'outbox-bridge/%%/settle'"
            ),
            "the settle waits",
            PATIENCE,
        )
    rows = outbox.wait_for("SENT", ids)
    assert all(row.claim_count == 1 for row in rows)
    assert len(consume(topic)) == 10
    assert relay.stop()["lost_leases"] == 0


@on_one_server
def test_recovery_after_a_crash_begins_within_seconds_and_leaves_fresh_rows_alone(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
) -> None:
    """wolverine#587: recovery sent again what had just been written, and the rest an hour later.

    Rows that the living node was about to send looked orphaned and went out twice, while those of
    the crashed node waited for a time-out that nobody had chosen.
    """
    topic = new_topic()
    victim = start_relay(**NEVER_SETTLES)
    orphans = outbox.add(100, topic, prefix="orphan")
    outbox.wait_for("PROCESSING", orphans)
    survivor = start_relay(relay_settle_interval=0.5)
    # Its flight is full, so that what comes now is the survivor's.
    victim.process.send(signal.SIGSTOP)
    fresh: list[int] = []
    for number in range(10):
        fresh += outbox.add(30, topic, prefix=f"fresh-{number}")
        if number == 3:
            victim.process.kill()
        wait_until(
            lambda: (
                not outbox.value(
                    "select count(*) from app_outbox where outbox_id = any(%s) and claim_count = 0",
                    fresh,  # noqa: B023 - called before the next turn
                )
            ),
            "the fresh rows are claimed",
            PATIENCE,
        )
    # Leases of two minutes and a stuck time-out of thirty cannot have done it.
    outbox.wait_for("SENT", orphans + fresh)

    copies = Counter(ids_of(consume(topic)))
    assert {copies[outbox_id] for outbox_id in fresh} == {1}
    assert max(copies[outbox_id] for outbox_id in orphans) <= 2
    assert survivor.stop()["rescued"] == 100


@on_one_server
def test_the_next_relay_of_the_same_name_inherits_nothing_and_blocks_no_rescue(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
) -> None:
    """procrastinate#1518 and oban#862: rows of a dead worker that nobody ever took back.

    Its heartbeat row had been pruned, or the next worker on that host had the same name and so kept
    the dead one's rows looking alive.
    """
    topic = new_topic()
    dead = start_relay(name="host-1", **NEVER_SETTLES)
    ids = outbox.add(50, topic) + outbox.add(10, topic, prefix="o", ordering_key="k")
    outbox.wait_for("PROCESSING", ids)
    dead.process.kill()
    # As a careless clean-up would do it: the claims and lanes of the dead one remain.
    outbox.execute("delete from app_outbox_relay")

    start_relay(name="host-1")

    rows = outbox.wait_for("SENT", ids)
    assert_places_hold(rows, consume(topic))
    assert all(row.retry_count == 0 for row in rows)


@on_one_server
def test_sends_that_take_longer_than_the_lease_lose_no_outcome(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
) -> None:
    """langwatch#7037 and pgqueuer#430: a lease shorter than the work that it guards.

    The batch's lease ended amid its sends, marking the rows matched none of them, and nobody was
    told. Here the lease is renewed by the heartbeat, whatever the age of the claim.
    """
    topic = new_topic()
    relay = start_relay(**FAST_LEASE, relay_settle_interval=8)
    start_relay(**FAST_LEASE, relay_settle_interval=8)
    ids = outbox.add(50, topic)

    rows = outbox.wait_for("SENT", ids)

    assert all(row.claim_count == 1 for row in rows)
    assert Counter(ids_of(consume(topic))) == dict.fromkeys(ids, 1)
    assert relay.stop()["lost_leases"] == 0


def test_a_stale_worker_writes_nothing_over_a_row_that_nobody_owns(
    outbox: Outbox, start_relay: StartRelayFunction, new_topic: NewTopicFunction
) -> None:
    """quill-router#355: a worker that had lost its lease wrote through `owner is null`.

    The row had been given back by hand in the meantime and was nobody's, which the condition of
    its update let pass. Here every outcome is fenced by the claim, and no claim matches nothing.
    """
    topic = new_topic()
    ids = outbox.add(10, topic)
    relay = start_relay(relay_settle_interval=5)
    outbox.wait_for("PROCESSING", ids)
    # Given back by hand, for later; the second half to another claim.
    outbox.execute(
        "update app_outbox set status = 'PENDING', claim_id = null, locked_by = null, "
        "next_run_at = now() + interval '1 hour' where outbox_id = any(%s)",
        ids[:5],
    )
    outbox.execute(
        "update app_outbox set claim_id = %s where outbox_id = any(%s)", uuid.uuid4(), ids[5:]
    )

    lost = relay.wait_for_event("lost leases")

    assert sorted(lost["outbox_ids"]) == ids
    rows = outbox.rows(ids)
    assert {row.status for row in rows[:5]} == {"PENDING"}
    assert {row.status for row in rows[5:]} == {"PROCESSING"}
    assert all(row.sent_at is None and row.retry_count == 0 for row in rows)
    relay.stop()
