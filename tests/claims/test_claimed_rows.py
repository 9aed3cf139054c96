"""A claim takes what is due, exactly once, whatever plain SQL does beside it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge.relay.claim import Intake
from bridge.relay.claimer import Claimer, Run
from tests.claims.desk import InBackground, ids
from tests.claims.outbox import count, faults, insert, state, states, unclaimed, waits
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from tests.claims.conftest import OpenConnection, OpenDesk
    from tests.claims.desk import Desk

CLAIMS = ["claim_rows", "claim_rows_skipping"]

Conn = psycopg.Connection[Any]


@pytest.mark.parametrize("statement", CLAIMS)
def test_rows_are_claimed_when_they_are_due_and_not_before(
    conn: Conn, desk: Desk, statement: str
) -> None:
    earliest = insert(conn, next_run_at="'-infinity'::timestamptz")
    past = insert(conn, next_run_at="now() - interval '1 year'")
    now = insert(conn)
    insert(conn, next_run_at="now() + interval '1 hour'")
    insert(conn, next_run_at="'infinity'::timestamptz")
    assert ids(desk.claim(statement=statement)) == earliest + past + now
    assert ids(desk.claim(statement=statement)) == []
    assert states(conn) == {"PROCESSING": 3, "PENDING": 2}


def test_a_row_of_any_id_is_claimed_from_the_beginning_on(conn: Conn, desk: Desk) -> None:
    for outbox_id in (-(1 << 62), -1, 0, (1 << 63) - 1):
        conn.execute(
            "insert into app_outbox (outbox_id, message_key, event_type, destination, next_run_at) "
            "values (%s, %s, 't', 'orders', '-infinity')",
            [outbox_id, f"id {outbox_id}"],
        )
    assert desk.look(10) == [-(1 << 62), -1, 0, (1 << 63) - 1]


def test_a_claim_resumes_behind_its_cursor_even_among_equal_times(conn: Conn, desk: Desk) -> None:
    for time in ("'-infinity'::timestamptz", "now() - interval '1 hour'"):
        conn.execute("truncate app_outbox")
        rows = insert(conn, 25, next_run_at=time)
        desk.claimer._search(force=True)
        found: list[int] = []
        while looked := desk.look_again(10):
            found += looked
        assert sorted(found) == rows


@pytest.mark.parametrize("statement", CLAIMS)
@pytest.mark.parametrize("status", ["CANCELLED", "FAILED", "SENT"])
def test_a_row_that_left_pending_and_came_back_is_claimed_once(
    conn: Conn, desk: Desk, statement: str, status: str
) -> None:
    rows = insert(conn, 3)
    conn.execute("update app_outbox set status = %s", [status])
    conn.execute("update app_outbox set status = 'PENDING'")
    batch = desk.claim(statement=statement)
    assert ids(batch) == rows
    assert ids(desk.claim(statement=statement)) == []
    assert desk.settle(batch) == 3
    assert ids(desk.claim(statement=statement)) == []
    assert faults(conn) == {}


@pytest.mark.parametrize("statement", CLAIMS)
def test_a_row_moved_to_a_later_time_waits_for_it(conn: Conn, desk: Desk, statement: str) -> None:
    rows = insert(conn, 3)
    conn.execute("update app_outbox set next_run_at = now() + interval '1 day'")
    assert ids(desk.claim(statement=statement)) == []
    assert faults(conn) == {}
    conn.execute("update app_outbox set next_run_at = now() - interval '1 second'")
    assert ids(desk.claim(statement=statement)) == rows
    assert ids(desk.claim(statement=statement)) == []


@pytest.mark.parametrize("statement", CLAIMS)
def test_a_row_moved_to_an_earlier_time_is_claimed_then(
    conn: Conn, desk: Desk, statement: str
) -> None:
    rows = insert(conn, 3, next_run_at="now() + interval '1 day'")
    conn.execute("update app_outbox set next_run_at = '-infinity' where outbox_id = %s", [rows[0]])
    conn.execute("update app_outbox set next_run_at = now() where outbox_id = %s", [rows[2]])
    assert ids(desk.claim(statement=statement)) == [rows[0], rows[2]]


@pytest.mark.parametrize("statement", CLAIMS)
def test_a_deleted_row_is_neither_claimed_nor_in_the_way(
    conn: Conn, desk: Desk, statement: str
) -> None:
    rows = insert(conn, 5)
    conn.execute("delete from app_outbox where outbox_id = any(%s)", [rows[:3]])
    assert ids(desk.claim(statement=statement)) == rows[3:]


@pytest.mark.parametrize("statement", CLAIMS)
def test_a_row_whose_destination_changed_is_claimed_once_for_the_new_one(
    conn: Conn, desk: Desk, statement: str
) -> None:
    rows = insert(conn, 2, destination="old")
    conn.execute("update app_outbox set destination = 'new'")
    claimed = [
        row
        for destination in ("new", "old", "new")
        for row in desk.claim([destination], statement=statement).rows
    ]
    assert [(row[0], row[1]) for row in claimed] == [(outbox_id, "new") for outbox_id in rows]


def test_a_row_that_got_an_ordering_key_is_claimed_from_its_lane_alone(
    conn: Conn, desk: Desk
) -> None:
    desk.take_all_lanes()
    rows = insert(conn, 2)
    conn.execute("update app_outbox set ordering_key = 'k'")
    assert ids(desk.claim()) == []
    assert ids(desk.claim(statement="claim_rows_skipping")) == []
    assert ids(desk.claim_ordered()) == rows


def test_a_row_that_lost_its_ordering_key_is_claimed_without_lane(conn: Conn, desk: Desk) -> None:
    desk.take_all_lanes()
    rows = insert(conn, 2, ordering_key="k")
    conn.execute("update app_outbox set ordering_key = null")
    assert ids(desk.claim_ordered()) == []
    assert ids(desk.claim()) == rows


def test_a_row_is_claimed_from_the_lane_of_its_present_key(conn: Conn, desk: Desk) -> None:
    desk.take_all_lanes()
    (row,) = insert(conn, ordering_key="a")
    (lane_a,), (lane_b,) = conn.execute(
        "select hashtext(k) & 63 from unnest(array['a', 'b']) as k"
    ).fetchall()
    assert lane_a != lane_b
    conn.execute("update app_outbox set ordering_key = 'b'")
    assert ids(desk.claim_ordered([lane_a])) == []
    assert ids(desk.claim_ordered([lane_b])) == [row]


def test_two_claimers_at_once_never_claim_the_same_row(conn: Conn, open_desk: OpenDesk) -> None:
    desks = [open_desk("one"), open_desk("two"), open_desk("three")]
    rows = insert(conn, 3000)
    # A second entry for each row, so that claimers meet on the rows and not only on the entries.
    conn.execute("update app_outbox set next_run_at = next_run_at - interval '1 minute'")
    start = threading.Barrier(len(desks))

    def claim_all(desk: Desk) -> list[int]:
        start.wait()
        found: list[int] = []
        while looked := desk.look_again(50):
            found += looked
        return found

    for desk in desks:
        desk.claimer._search(force=True)
    running = [InBackground(lambda desk=desk: claim_all(desk)) for desk in desks]
    found = [outbox_id for work in running for outbox_id in work.result()]
    found += desks[0].look(3000)
    assert sorted(found) == rows
    assert unclaimed(conn) == []
    assert conn.execute("select distinct claim_count from app_outbox").fetchall() == [(1,)]


def test_a_row_locked_by_a_person_delays_no_other(
    conn: Conn, connect: OpenConnection, desk: Desk
) -> None:
    # Begun before the rows are there: however late the rest is, no look starts behind them.
    person = connect(autocommit=False)
    person.execute("select now()")
    rows = insert(conn, 5)
    person.execute('update app_outbox set headers = \'{"a": "b"}\' where outbox_id = %s', [rows[2]])
    assert desk.look(10) == [*rows[:2], *rows[3:]]
    assert desk.look(10) == []
    person.commit()
    assert desk.look(10) == [rows[2]]
    assert faults(conn) == {}


def test_a_row_that_a_person_cancels_while_the_claim_waits_is_not_claimed(
    conn: Conn, connect: OpenConnection, open_desk: OpenDesk
) -> None:
    desk = open_desk(lock_timeout=30)
    rows = insert(conn, 3)
    person = connect(autocommit=False)
    person.execute("update app_outbox set status = 'CANCELLED' where outbox_id = %s", [rows[1]])
    claim = InBackground(desk.claim)
    wait_until(lambda: waits(conn), "the claim waits for the person")
    person.commit()
    assert ids(claim.result()) == [rows[0], rows[2]]
    assert state(conn, rows[1]) == "CANCELLED"
    assert ids(desk.claim()) == []
    assert faults(conn) == {}


def test_a_row_that_a_person_moved_while_the_claim_waited_keeps_its_new_entry(
    conn: Conn, connect: OpenConnection, open_desk: OpenDesk
) -> None:
    desk = open_desk(lock_timeout=30)
    rows = insert(conn, 3)
    person = connect(autocommit=False)
    person.execute(
        "update app_outbox set next_run_at = now() + interval '1 hour' where outbox_id = %s",
        [rows[1]],
    )
    claim = InBackground(desk.claim)
    wait_until(lambda: waits(conn), "the claim waits for the person")
    person.commit()
    assert ids(claim.result()) == [rows[0], rows[2]]
    assert faults(conn) == {}


def test_a_row_that_a_person_deletes_while_the_claim_waits_is_gone(
    conn: Conn, connect: OpenConnection, open_desk: OpenDesk
) -> None:
    desk = open_desk(lock_timeout=30)
    rows = insert(conn, 3)
    person = connect(autocommit=False)
    person.execute("delete from app_outbox where outbox_id = %s", [rows[1]])
    claim = InBackground(desk.claim)
    wait_until(lambda: waits(conn), "the claim waits for the person")
    person.commit()
    assert ids(claim.result()) == [rows[0], rows[2]]
    assert count(conn, "app_outbox_queue") == 0


def test_a_backlog_of_stale_entries_is_thrown_away_without_a_pause(
    conn: Conn, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert(conn, 2000)
    conn.execute("update app_outbox set status = 'CANCELLED'")
    (row,) = insert(conn, next_run_at="now()")

    def sleep(_self: Claimer, _rows: int) -> bool:
        pytest.fail("slept while a row was due")

    monkeypatch.setattr(Claimer, "_sleep", sleep)
    desk.claimer._run = Run(until_empty=True)
    monkeypatch.setattr(desk.claimer, "_nothing_due", lambda: pytest.fail("asked too early"))
    monkeypatch.setattr(Intake, "enter", lambda _self, _id, rows, *_: entered(rows))
    found: list[int] = []

    def entered(rows: list[Any]) -> None:
        found.extend(row[0] for row in rows)
        if found:
            desk.claimer.stop.set()

    desk.claimer.run()
    assert found == [row]


def test_once_is_not_used_up_by_stale_entries(conn: Conn, desk: Desk) -> None:
    insert(conn, 250)
    conn.execute("delete from app_outbox")
    rows = insert(conn, 5)
    desk.claimer._run = Run(once=True, limit=100)
    desk.claimer.run()
    assert [ids(batch) for batch in desk.flight.batches()] == [rows]


@pytest.mark.parametrize("statement", CLAIMS)
def test_claims_say_how_many_entries_were_stale(conn: Conn, desk: Desk, statement: str) -> None:
    rows = insert(conn, 5)
    conn.execute("update app_outbox set status = 'CANCELLED' where outbox_id = any(%s)", [rows[:2]])
    parameters = desk.parameters("5f0f7f4a-0000-4000-8000-000000000001") | desk.where(["orders"])
    claimed = desk.session.rows(statement, parameters)
    assert [row[0] for row in claimed] == [*rows[2:], None]
    assert claimed[-1][10] == 2
