"""Rescue, reconciler, claim and settle, each stopped between its statements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge.lifecycle import RESCUED_MESSAGE, ErrorCode
from bridge.relay.batch import Ack, Batch
from tests.claims.desk import InBackground, ids
from tests.claims.outbox import count, faults, insert, state, states, unclaimed, waits
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from tests.claims.conftest import OpenConnection, OpenDesk
    from tests.claims.desk import Desk

Conn = psycopg.Connection[Any]


def end(desk: Desk, batch: Batch) -> int:
    """Count the death and take the claim back: what a rescuer does with each claim."""
    return desk.rescuer._end(batch.claim_id)  # type: ignore[arg-type]  # a UUID or its text


def make_suspects(conn: Conn, deaths: int = 2) -> None:
    conn.execute(
        "insert into app_outbox_suspect (outbox_id, deaths) select outbox_id, %s from app_outbox",
        [deaths],
    )


@pytest.fixture
def pair(open_desk: OpenDesk) -> tuple[Desk, Desk]:
    """A relay that works, and another one that rescues; both wait long for locks."""
    return open_desk("works", lock_timeout=30), open_desk("rescues", lock_timeout=30)


def test_rows_settled_before_the_rescue_are_neither_counted_nor_turned_back(
    conn: Conn, pair: tuple[Desk, Desk]
) -> None:
    desk, rescuer = pair
    rows = insert(conn, 4)
    batch = desk.claim()
    with desk.settling.connection.transaction():
        assert desk.settle(batch, rows[:2]) == 2
        assert end(rescuer, batch) == 2  # the settled rows are locked: not waited for
        counted = conn.execute("select outbox_id from app_outbox_suspect order by 1").fetchall()
        assert [row[0] for row in counted] == rows[2:]
    assert end(rescuer, batch) == 0
    assert states(conn) == {"SENT": 2, "PENDING": 2}
    assert count(conn, "app_outbox_claim") == 0
    assert faults(conn) == {}


def test_a_settle_amid_the_rescue_marks_sent_and_nothing_stays_held(
    conn: Conn, pair: tuple[Desk, Desk]
) -> None:
    """The settle began before the hold: it cannot see it, and the check of the holds does."""
    desk, rescuer = pair
    desk.take_all_lanes()
    rows = insert(conn, 2, ordering_key="k")
    make_suspects(conn)
    batch = desk.claim_ordered()
    with rescuer.session.connection.transaction():
        assert end(rescuer, batch) == 2
        settle = InBackground(lambda: desk.settle(batch))
        wait_until(lambda: waits(conn), "the settle waits for the rescue")
    assert settle.result() == 2
    assert states(conn) == {"SENT": 2}
    followers = insert(conn, 2, ordering_key="k")
    assert ids(desk.claim_ordered()) == []
    desk.claimer.holds.check(range(64))
    desk.return_followers()
    assert ids(desk.claim_suspect()) == []
    assert ids(desk.claim_ordered()) == followers
    assert rows
    assert faults(conn) == {}


def test_a_claim_amid_the_rescue_finds_nothing_and_after_it_everything(
    conn: Conn, pair: tuple[Desk, Desk]
) -> None:
    desk, rescuer = pair
    rows = insert(conn, 3)
    batch = desk.claim()
    with rescuer.session.connection.transaction():
        assert end(rescuer, batch) == 3
        assert ids(desk.claim()) == []
    again = desk.claim()
    assert ids(again) == rows
    assert desk.settle(batch) == 0
    assert end(rescuer, batch) == 0
    assert states(conn) == {"PROCESSING": 3}
    assert desk.settle(again) == 3


def test_a_rescue_amid_the_next_claim_leaves_that_alone(
    conn: Conn, pair: tuple[Desk, Desk]
) -> None:
    desk, rescuer = pair
    insert(conn, 3)
    old = desk.claim()
    assert end(rescuer, old) == 3
    with desk.session.connection.transaction():
        new = desk.claim()
        assert end(rescuer, old) == 0
        assert end(rescuer, new) == 0  # not committed: nobody else sees it
    assert states(conn) == {"PROCESSING": 3}
    assert unclaimed(conn) == []
    assert conn.execute("select distinct deaths from app_outbox_suspect").fetchall() == [(1,)]


def test_fresh_rows_are_no_business_of_a_rescue(conn: Conn, pair: tuple[Desk, Desk]) -> None:
    desk, rescuer = pair
    insert(conn, 2)
    batch = desk.claim()
    with rescuer.session.connection.transaction():
        assert end(rescuer, batch) == 2
        fresh = insert(conn, 2)
        assert ids(desk.claim()) == fresh
    assert [state(conn, row) for row in fresh] == ["PROCESSING"] * 2
    assert conn.execute(
        "select count(*) from app_outbox_suspect where outbox_id = any(%s)", [fresh]
    ).fetchone() == (0,)


def test_two_rescuers_count_one_death(conn: Conn, open_desk: OpenDesk) -> None:
    one, two = open_desk("one"), open_desk("two")
    insert(conn, 3)
    batch = one.claim()
    with one.session.connection.transaction():
        assert end(one, batch) == 3
        assert end(two, batch) == 0
    assert end(two, batch) == 0
    assert conn.execute("select distinct deaths from app_outbox_suspect").fetchall() == [(1,)]
    assert count(conn, "app_outbox_queue") == 3


def test_a_death_is_counted_once_where_a_locked_row_needs_a_second_rescue(
    conn: Conn, connect: OpenConnection, desk: Desk
) -> None:
    rows = insert(conn, 3)
    batch = desk.claim()
    person = connect(autocommit=False)
    person.execute("select from app_outbox where outbox_id = %s for update", [rows[1]])
    assert end(desk, batch) == 2
    person.rollback()
    assert end(desk, batch) == 1
    assert conn.execute(
        "select outbox_id, deaths from app_outbox_suspect order by 1"
    ).fetchall() == [(row, 1) for row in rows]


def test_a_rescue_that_is_rolled_back_counts_nothing(conn: Conn, desk: Desk) -> None:
    insert(conn, 2)
    batch = desk.claim()
    with desk.session.connection.transaction(force_rollback=True):
        assert end(desk, batch) == 2
    assert count(conn, "app_outbox_suspect") == 0
    assert states(conn) == {"PROCESSING": 2}
    assert desk.settle(batch) == 2


def test_the_reconciler_beside_a_claim_a_settle_and_a_rescue(
    conn: Conn, pair: tuple[Desk, Desk]
) -> None:
    desk, other = pair
    insert(conn, 6)
    first, second = desk.claim(rows=2), desk.claim(rows=2)
    with desk.session.connection.transaction(), desk.settling.connection.transaction():
        desk.claim(rows=2)
        assert desk.settle(first) == 2
        step = {"first_id": 1, "last_id": 1000}
        codes = {"error_code": ErrorCode.STUCK_PROCESSING, "error_message": RESCUED_MESSAGE}
        assert other.session.run("reconcile_claims", step | codes) == 0
        assert other.session.run("reconcile_queue", step) == 0
    with other.session.connection.transaction():
        assert end(other, second) == 2
        found = desk.reconciler.reconcile()
        assert (found.queued, found.released, found.adopted) == (0, 0, 0)
    assert states(conn) == {"SENT": 2, "PENDING": 2, "PROCESSING": 2}
    assert faults(conn) == {}
    assert unclaimed(conn) == []


def test_the_reconciler_beside_parking_and_coming_back(conn: Conn, pair: tuple[Desk, Desk]) -> None:
    desk, other = pair
    desk.take_all_lanes()
    (head,) = insert(conn, ordering_key="k")
    desk.fail(desk.claim_ordered(), final=True)
    rows = insert(conn, 3, ordering_key="k")
    for work in (desk.claim_ordered, desk.return_followers):
        with desk.session.connection.transaction():
            work()
            found = other.reconciler.reconcile()
            assert (found.queued, found.released, found.adopted) == (0, 0, 0)
        conn.execute("update app_outbox set status = 'CANCELLED' where outbox_id = %s", [head])
    desk.return_followers()
    assert ids(desk.claim_ordered()) == rows
    assert count(conn, "app_outbox_queue") == 0


@pytest.mark.parametrize(
    "change",
    [
        "status = 'CANCELLED'",
        "status = 'PENDING', next_run_at = now()",
        "next_run_at = now() + interval '1 s'",
        "payload_json = '2'",
        'headers = \'{"a": "b"}\'',
        "destination = 'invoices'",
        "event_type = 'order.changed'",
    ],
)
def test_after_a_rescue_what_somebody_decided_fences_the_late_ack(
    conn: Conn, desk: Desk, change: str
) -> None:
    insert(conn, 2)
    batch = desk.claim()
    assert end(desk, batch) == 2
    if change.startswith("status = 'PENDING'"):
        conn.execute("update app_outbox set status = 'FAILED'")
    conn.execute(f"update app_outbox set {change}".encode())
    assert conn.execute("select distinct claim_id from app_outbox").fetchall() == [(None,)]
    assert desk.settle(batch) == 0
    assert len(desk.settlement.find_lost([Ack(row[0], 0, 0, batch) for row in batch.rows])) == 2


@pytest.mark.parametrize("status", ["PENDING", "CANCELLED"])
def test_a_row_taken_away_while_it_is_processing_matches_no_ack(
    conn: Conn, desk: Desk, status: str
) -> None:
    insert(conn, 2)
    batch = desk.claim()
    conn.execute("update app_outbox set status = %s", [status])
    assert desk.settle(batch) == 0
    assert states(conn) == {status: 2}


def test_an_edit_that_changes_no_content_keeps_the_late_ack(conn: Conn, desk: Desk) -> None:
    insert(conn, 2)
    batch = desk.claim()
    assert end(desk, batch) == 2
    conn.execute("update app_outbox set max_retry_count = 7")
    assert desk.settle(batch) == 2
