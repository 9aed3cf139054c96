"""Two operators at once, and operators against relays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge.lifecycle import Status
from bridge.operations import Edit, Selection, cancel, edit, release, retry, skip, verify_audit
from tests.claims.desk import InBackground, ids
from tests.claims.outbox import faults, insert, state, waits
from tests.fixtures.waiting import wait_until
from tests.operations.audits import columns, entries
from tests.operations.conftest import WHY

if TYPE_CHECKING:
    from tests.claims.conftest import OpenConnection
    from tests.claims.desk import Desk

Conn = psycopg.Connection[Any]


@pytest.mark.usefixtures("patient")
def test_of_two_operators_at_one_row_one_acts_and_the_other_is_told(
    conn: Conn, connect: OpenConnection
) -> None:
    (row,) = insert(conn, status="FAILED")
    first = connect(autocommit=False)
    first.execute("select 1")  # its transaction stays open
    retry(first, Selection(ids=(row,)), **WHY)
    second = connect()
    other = InBackground(lambda: cancel(second, Selection(ids=(row,)), **WHY))
    wait_until(lambda: waits(conn), "the second waits for the row")
    first.commit()
    assert other.result().changed == 1, "a retried row is PENDING and may be cancelled"
    assert [entry.action_name for entry in entries(conn)] == ["retry", "cancel"]
    third = retry(conn, Selection(ids=(row,)), **WHY)
    assert third.refused[0].why.startswith("retry target is not FAILED: it is CANCELLED since")
    assert verify_audit(conn).holds


def test_two_retries_of_the_same_rows_change_each_once(conn: Conn, connect: OpenConnection) -> None:
    rows = insert(conn, 300, status="FAILED")
    everything = Selection(statuses=(Status.FAILED,))
    connections = [connect() for _ in range(3)]
    runs = [
        InBackground(lambda c=c: retry(c, everything, batch_rows=20, **WHY)) for c in connections
    ]
    outcomes = [run.result() for run in runs]
    assert sum(outcome.changed for outcome in outcomes) == 300
    assert sorted(str(entry.outbox_id) for entry in entries(conn)) == sorted(map(str, rows))
    assert faults(conn) == {}
    report = verify_audit(conn)
    assert (report.entries, report.holds) == (300, True)


def test_a_row_locked_by_somebody_is_left_and_told(
    conn: Conn, connect: OpenConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridge.operations.bulk._LOCK_TIMEOUT", "50ms")
    rows = insert(conn, 3, status="FAILED")
    person = connect(autocommit=False)
    person.execute("select from app_outbox where outbox_id = %s for update", [rows[1]])
    outcome = retry(conn, Selection(ids=tuple(rows)), **WHY)
    assert outcome.changed == 2
    assert outcome.refused == (
        (rows[1], "retry target is locked by another transaction; try again"),
    )
    person.rollback()
    assert retry(conn, Selection(statuses=(Status.FAILED,)), **WHY).changed == 1


def test_a_late_acknowledgement_after_retry_and_cancel_is_a_lost_lease(
    conn: Conn, desk: Desk
) -> None:
    retried, cancelled, edited = insert(conn, 3)
    batch = desk.claim()
    # They were refused as it seemed, or taken back; the acknowledgements were under way.
    conn.execute("set outbox_bridge.session = 'relay'")
    conn.execute("update app_outbox set status = 'FAILED' where outbox_id = %s", [retried])
    conn.execute(
        "update app_outbox set status = 'PENDING' where outbox_id = any(%s)", [[cancelled, edited]]
    )
    conn.execute("reset outbox_bridge.session")
    retry(conn, Selection(ids=(retried,)), **WHY)
    cancel(conn, Selection(ids=(cancelled,)), **WHY)
    edit(conn, Selection(ids=(edited,)), Edit(payload="2"), **WHY)
    assert desk.settle(batch) == 0
    assert state(conn, cancelled) == "CANCELLED"
    again = desk.claim()
    assert sorted(ids(again)) == [retried, edited]
    assert desk.settle(again) == 2
    assert faults(conn) == {}


def test_a_late_acknowledgement_after_a_release_counts(conn: Conn, desk: Desk) -> None:
    (row,) = insert(conn)
    batch = desk.claim()
    conn.execute("delete from app_outbox_claim")
    release(conn, Selection(ids=(row,)), **WHY)
    assert state(conn, row) == "PENDING"
    assert desk.settle(batch) == 1
    assert state(conn, row) == "SENT"


@pytest.mark.usefixtures("patient")
def test_a_row_that_a_relay_claims_first_is_not_cancelled(
    conn: Conn, desk: Desk, connect: OpenConnection
) -> None:
    (row,) = insert(conn)
    claiming = connect(autocommit=False)
    claiming.execute(
        "update app_outbox set status = 'PROCESSING', claim_id = gen_random_uuid(), "
        "locked_by = 'relay-7', locked_at = now() where outbox_id = %s",
        [row],
    )
    person = connect()
    run = InBackground(lambda: cancel(person, Selection(ids=(row,)), **WHY))
    wait_until(lambda: waits(conn), "the operator waits")
    claiming.commit()
    outcome = run.result()
    assert outcome.changed == 0
    assert outcome.refused[0].why.endswith("claimed by relay-7")
    assert entries(conn) == []


def test_a_relay_does_not_wait_for_an_operators_open_transaction(
    conn: Conn, desk: Desk, connect: OpenConnection
) -> None:
    first, second = insert(conn, 2)
    person = connect(autocommit=False)
    person.execute("select 1")  # its transaction stays open
    cancel(person, Selection(ids=(first,)), **WHY)
    batch = desk.claim(statement="claim_rows_skipping")
    assert ids(batch) == [second]
    assert desk.settle(batch) == 1
    person.commit()
    assert desk.look(10) == []
    assert columns(conn, first, "status") == ("CANCELLED",)


def test_a_skip_against_a_sent_head_is_told(conn: Conn, desk: Desk) -> None:
    desk.take_all_lanes()
    (head,) = insert(conn, ordering_key="k")
    desk.fail(desk.claim_ordered(), final=True)
    retry(conn, Selection(ids=(head,)), **WHY)
    desk.settle(desk.claim_ordered())
    outcome = skip(conn, Selection(ids=(head,)), **WHY)
    assert outcome.refused[0].why.startswith(
        "skip target is not PENDING or FAILED: it is SENT since"
    )
