"""Operators against relays that run, with Kafka."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import psycopg
import pytest

from bridge.lifecycle import Status
from bridge.operations import Edit, Selection, cancel, edit, replay, retry, send_now, verify_audit
from tests.fixtures.postgres import on_one_server
from tests.fixtures.relays import PATIENCE
from tests.fixtures.waiting import wait_until
from tests.operations.conftest import WHY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from tests.fixtures.kafka import ConsumeFunction, NewTopicFunction
    from tests.fixtures.relays import Outbox, StartRelayFunction

pytestmark = on_one_server


@pytest.fixture
def operator(outbox: Outbox) -> Iterator[psycopg.Connection[Any]]:
    """Another session than the test's."""
    with psycopg.connect(outbox.url, autocommit=True) as conn:
        yield conn


def test_failed_rows_are_mended_retried_and_replayed_under_a_running_relay(
    outbox: Outbox,
    operator: psycopg.Connection[Any],
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
) -> None:
    topic = new_topic()
    relay = start_relay()
    # Headers that are no strings cannot be sent.
    bad = outbox.add(2, topic, prefix="bad", headers=json.dumps({"n": 1}))
    good = outbox.add(20, topic, prefix="good")
    outbox.wait_for("FAILED", bad)
    outbox.wait_for("SENT", good)
    edit(operator, Selection(ids=(bad[0],)), Edit(headers={"n": "1"}), **WHY)
    retry(operator, Selection(ids=(bad[0],)), **WHY)
    outbox.wait_for("SENT", bad[:1])
    cancel(operator, Selection(ids=(bad[1],)), **WHY)
    (later,) = outbox.add(1, topic, prefix="later", next_run_at="infinity")
    send_now(operator, Selection(ids=(later,)), **WHY)
    outbox.wait_for("SENT", [later])
    outcome = replay(operator, Selection(statuses=(Status.SENT,), key_pattern="good-*"), **WHY)
    assert outcome.changed == 20
    outbox.wait_for("SENT", good)
    wait_until(lambda: outbox.counts() == {"SENT": 22, "CANCELLED": 1}, "all is settled", PATIENCE)
    relay.stop()
    records = consume(topic)
    keys = [record.headers["idempotency-key"] for record in records]
    assert sorted(keys) == sorted([*(f"good-{n}" for n in range(1, 21))] * 2 + ["bad-1", "later-1"])
    again = [record for record in records if "outbox-replay-id" in record.headers]
    assert {record.headers["outbox-replay-id"] for record in again} == {outcome.replay_id}
    assert len(again) == 20
    assert verify_audit(operator).holds


def test_operators_and_relays_at_work_on_the_same_rows_lose_nothing(
    outbox: Outbox,
    operator: psycopg.Connection[Any],
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
) -> None:
    topic = new_topic()
    relay = start_relay()
    cancelled: set[int] = set()
    for turn in range(15):
        outbox.add(200, topic, prefix=f"t{turn}")
        outcome = cancel(operator, Selection(destination=topic), batch_rows=50, **WHY)
        cancelled |= {row.outbox_id for row in outcome.rows}
        sent = Selection(statuses=(Status.SENT,), key_pattern=f"t{turn}-1*")
        replay(operator, sent, rows_per_second=100_000, limit=20, **WHY)
    wait_until(lambda: set(outbox.counts()) <= {"SENT", "CANCELLED"}, "all settled", PATIENCE)
    relay.stop()
    sent_keys = {record.headers["idempotency-key"] for record in consume(topic)}
    rows = outbox.rows()
    assert len(rows) == 3000
    for row in rows:
        if row.status == "SENT":
            assert row.message_key in sent_keys
        elif row.claim_count == 0:
            assert row.message_key not in sent_keys
    assert {row.outbox_id for row in rows if row.status == "CANCELLED"} >= cancelled - {
        row.outbox_id for row in rows if row.status == "SENT"
    }
    report = verify_audit(operator)
    assert report.holds
    assert report.entries == outbox.value("select count(*) from app_outbox_audit")
    outbox.assert_nothing_is_left_behind()
