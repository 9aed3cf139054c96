"""Promises 3 and 4: what a crash sends again is the same message, and only what was in flight."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tests.fixtures.postgres import on_one_server
from tests.fixtures.relays import assert_places_hold, ids_of
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from tests.fixtures.kafka import ConsumeFunction, NewTopicFunction, ReceivedRecord
    from tests.fixtures.relays import Outbox, RunRelayFunction, StartRelayFunction


def test_crash_after_ack_before_settle_resends_same_key(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    run_relay: RunRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
) -> None:
    topic = new_topic()
    settled = outbox.add(30, topic, prefix="settled")
    run_relay()
    unsettled = outbox.add(20, topic, prefix="unsettled", headers='{"tenant": "a"}')
    unsettled += outbox.add(10, topic, prefix="ordered", ordering_key="order-7")
    crashing = start_relay(relay_settle_interval=3600)
    consume(topic, count=60, timeout=60)
    assert {row.status for row in outbox.rows(unsettled)} == {"PROCESSING"}
    crashing.process.kill()

    run_relay()

    rows = outbox.rows()
    assert {row.status for row in rows} == {"SENT"}
    records = consume(topic)
    by_id: dict[int, list[ReceivedRecord]] = defaultdict(list)
    for record in records:
        by_id[int(record.headers["outbox-id"])].append(record)
    assert {outbox_id for outbox_id, sent in by_id.items() if len(sent) > 1} == set(unsettled)
    for outbox_id in unsettled:
        first, again = by_id[outbox_id]
        assert (again.key, again.value) == (first.key, first.value)
        assert again.headers["idempotency-key"] == first.headers["idempotency-key"]
        assert first.headers["outbox-attempt"] == "1"
        assert again.headers["outbox-attempt"] == "2"
        attempts = {"outbox-attempt": ""}
        assert {**again.headers, **attempts} == {**first.headers, **attempts}
        assert again.partition == first.partition
        assert again.offset > first.offset
    assert_places_hold(rows, records)
    assert all(row.retry_count == 0 for row in rows)
    assert {row.claim_count for row in outbox.rows(settled)} == {1}


@on_one_server
def test_crash_before_produce_loses_nothing_and_duplicates_nothing(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    run_relay: RunRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
) -> None:
    topic = new_topic()
    ids = outbox.add(50, topic)
    crashing = start_relay(wait=False)
    # Killed as soon as its first session shows up, at whatever it is doing then.
    wait_until(lambda: outbox.sessions(crashing.name), "the relay has connected")
    crashing.process.kill()
    wait_until(lambda: not outbox.sessions(crashing.name), "its sessions are gone")
    in_flight = outbox.query("select unnest(outbox_ids) from app_outbox_claim")

    run_relay()

    assert {row.status for row in outbox.rows()} == {"SENT"}
    sent = ids_of(consume(topic))
    assert set(sent) == set(ids)
    assert len(sent) - len(ids) <= len(in_flight)
