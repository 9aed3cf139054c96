"""Taking claims back: exactly once, beside settles and other rescuers, fenced by the claim."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge.lifecycle import RESCUED_MESSAGE, ErrorCode
from bridge.relay.batch import Ack, Batch, Unsent
from bridge.relay.settlement import Failure
from tests.claims.desk import InBackground, ids
from tests.claims.outbox import count, faults, insert, state, states, unclaimed, waits
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from tests.claims.conftest import OpenConnection, OpenDesk
    from tests.claims.desk import Desk

Conn = psycopg.Connection[Any]


def test_a_rescued_claim_gives_its_rows_back_uncharged(conn: Conn, desk: Desk) -> None:
    insert(conn, 3)
    batch = desk.claim()
    assert desk.rescue(batch) == (3, 0)
    assert conn.execute(
        "select distinct status, retry_count, claim_count, last_error_code, last_error_msg, "
        "locked_by, locked_at, claim_id::text from app_outbox"
    ).fetchall() == [
        ("PENDING", 0, 1, ErrorCode.STUCK_PROCESSING, RESCUED_MESSAGE, None, None, batch.claim_id)
    ]
    assert count(conn, "app_outbox_claim") == 0
    assert faults(conn) == {}


def test_a_second_rescuer_takes_nothing_twice(conn: Conn, open_desk: OpenDesk) -> None:
    one, two = open_desk("one"), open_desk("two")
    insert(conn, 3)
    batch = one.claim()
    with one.session.connection.transaction():
        assert one.rescue(batch) == (3, 0)
        assert two.rescue(batch) == (0, 0)
    assert two.rescue(batch) == (0, 0)
    assert conn.execute("select count(*) from app_outbox_queue").fetchone() == (3,)


def test_a_locked_row_keeps_its_claim_until_it_is_free(
    conn: Conn, connect: OpenConnection, desk: Desk
) -> None:
    rows = insert(conn, 3)
    batch = desk.claim()
    person = connect(autocommit=False)
    person.execute("select from app_outbox where outbox_id = %s for update", [rows[1]])
    assert desk.rescue(batch) == (2, 1)
    assert unclaimed(conn) == []
    person.rollback()
    assert desk.rescue(batch) == (1, 0)
    assert states(conn) == {"PENDING": 3}


def test_a_settle_under_way_keeps_its_rows(conn: Conn, open_desk: OpenDesk) -> None:
    desk, rescuer = open_desk("settles"), open_desk("rescues")
    rows = insert(conn, 4)
    batch = desk.claim()
    with desk.settling.connection.transaction():
        assert desk.settle(batch, rows[:2]) == 2
        assert rescuer.rescue(batch) == (2, 2)
    assert rescuer.rescue(batch) == (0, 0)
    assert states(conn) == {"SENT": 2, "PENDING": 2}
    assert count(conn, "app_outbox_claim") == 0
    assert faults(conn) == {}


def test_a_settle_that_waits_for_a_rescue_marks_the_rows_sent(
    conn: Conn, open_desk: OpenDesk
) -> None:
    desk, rescuer = open_desk("settles", lock_timeout=30), open_desk("rescues")
    insert(conn, 3)
    batch = desk.claim()
    with rescuer.session.connection.transaction():
        assert rescuer.rescue(batch) == (3, 0)
        settle = InBackground(lambda: desk.settle(batch))
        wait_until(lambda: waits(conn), "the settle waits for the rescue")
    assert settle.result() == 3
    assert states(conn) == {"SENT": 3}
    assert ids(desk.claim()) == []
    assert faults(conn) == {}


def test_a_late_ack_after_the_rescue_marks_sent(conn: Conn, desk: Desk) -> None:
    insert(conn, 3)
    batch = desk.claim()
    desk.rescue(batch)
    assert desk.settle(batch) == 3
    assert states(conn) == {"SENT": 3}
    assert ids(desk.claim()) == []
    assert faults(conn) == {}


def test_a_late_ack_after_the_next_claim_matches_nothing(conn: Conn, desk: Desk) -> None:
    rows = insert(conn, 3)
    old = desk.claim()
    desk.rescue(old)
    new = desk.claim()
    assert desk.settle(old) == 0
    assert desk.settlement.find_lost(_acks(old)) == rows
    assert states(conn) == {"PROCESSING": 3}
    assert desk.settle(new) == 3
    assert desk.settlement.find_lost(_acks(new)) == []


@pytest.mark.parametrize("status", ["CANCELLED", "FAILED"])
def test_a_late_ack_does_not_touch_what_a_person_decided(
    conn: Conn, desk: Desk, status: str
) -> None:
    """quill-router#355: a stale worker wrote to a row whose owner had been cleared."""
    insert(conn, 2)
    batch = desk.claim()
    conn.execute("update app_outbox set status = %s", [status])
    assert desk.settle(batch) == 0
    assert states(conn) == {status: 2}
    assert faults(conn) == {}


def test_acks_of_several_claims_are_each_fenced_by_their_own(conn: Conn, desk: Desk) -> None:
    insert(conn, 4)
    first, second = desk.claim(rows=2), desk.claim(rows=2)
    swapped = Batch(second.claim_id, list(first.rows))
    assert desk.settle(swapped) == 0
    acks = sorted(_acks(first) + _acks(second))
    assert desk.settlement.mark_sent(acks, [first, second]) == 4


def test_a_failure_of_an_older_claim_does_not_touch_the_present_one(conn: Conn, desk: Desk) -> None:
    (row,) = insert(conn)
    old = desk.claim()
    desk.rescue(old)
    (other,) = insert(conn)
    new = desk.claim()
    assert ids(new) == [row, other]
    # Both claims in one round: the row's own attempt is still under way.
    failures = [_failure(row, old), _failure(other, new)]
    result = desk.settlement.mark_failed(failures)
    assert (result.retried, result.failed, result.held, result.lost) == (1, 0, [], [row])
    assert state(conn, row) == "PROCESSING"
    assert state(conn, other) == "PENDING"


def test_failures_of_an_older_and_the_present_claim_in_one_round_end_the_present_one(
    conn: Conn, desk: Desk
) -> None:
    (row,) = insert(conn)
    old = desk.claim()
    desk.rescue(old)
    new = desk.claim()
    for failures in ([_failure(row, new), _failure(row, old)],):
        result = desk.settlement.mark_failed(failures)
        assert (result.retried, result.lost) == (1, [row])
    assert state(conn, row) == "PENDING"


def test_releasing_an_older_claim_does_not_touch_the_present_one(conn: Conn, desk: Desk) -> None:
    (row,) = insert(conn)
    old = desk.claim()
    desk.rescue(old)
    (other,) = insert(conn)
    new = desk.claim()
    assert desk.settlement.release([Unsent(row, old), Unsent(other, new)]) == []
    assert state(conn, row) == "PROCESSING"
    assert state(conn, other) == "PENDING"


def test_a_release_leaves_locked_rows_for_the_next_time(
    conn: Conn, connect: OpenConnection, desk: Desk
) -> None:
    rows = insert(conn, 3)
    batch = desk.claim()
    person = connect(autocommit=False)
    person.execute("select from app_outbox where outbox_id = %s for update", [rows[1]])
    unsent = [Unsent(row, batch) for row in rows]
    assert desk.settlement.release(unsent) == [unsent[1]]
    assert states(conn) == {"PENDING": 2, "PROCESSING": 1}
    person.rollback()
    assert desk.settlement.release([unsent[1]]) == []
    assert conn.execute(
        "select distinct status, claim_count, claim_id from app_outbox"
    ).fetchall() == [("PENDING", 0, None)]
    assert faults(conn) == {}


def test_a_released_row_counts_as_handed_to_kafka_where_the_client_had_it(
    conn: Conn, desk: Desk
) -> None:
    handed, kept = insert(conn, 2)
    batch = desk.claim()
    unsent = [Unsent(handed, batch, handed=True), Unsent(kept, batch)]
    assert desk.settlement.release(unsent) == []
    counts = conn.execute(
        "select outbox_id, claim_count, retry_count from app_outbox order by outbox_id"
    ).fetchall()
    assert counts == [(handed, 1, 0), (kept, 0, 0)]


def test_failures_of_locked_rows_are_handed_back(
    conn: Conn, connect: OpenConnection, desk: Desk
) -> None:
    rows = insert(conn, 2)
    batch = desk.claim()
    person = connect(autocommit=False)
    person.execute("select from app_outbox where outbox_id = %s for update", [rows[0]])
    result = desk.fail(batch)
    assert result.retried == 1
    assert [failure.outbox_id for failure in result.held] == [rows[0]]
    person.rollback()
    assert desk.settlement.mark_failed(result.held).retried == 1
    assert faults(conn) == {}


def test_two_settles_in_opposite_order_do_not_deadlock(conn: Conn, open_desk: OpenDesk) -> None:
    """taskbroker#778: two batch updates took the same rows in different orders."""
    one, two = open_desk("one", lock_timeout=30), open_desk("two", lock_timeout=30)
    insert(conn, 400)
    for _ in range(5):
        batch = one.claim(rows=400)
        settles = [
            InBackground(lambda desk=desk, batch=batch: desk.settle(batch)) for desk in (one, two)
        ]
        assert sum(settle.result() for settle in settles) == 400
        conn.execute("update app_outbox set status = 'PENDING'")


def test_a_claim_older_than_the_stuck_timeout_is_taken_back_once(
    conn: Conn, open_desk: OpenDesk
) -> None:
    desk = open_desk(stuck_timeout=300)
    insert(conn, 3)
    desk.claim(rows=2)
    conn.execute("update app_outbox_claim set claimed_at = claimed_at - interval '301 s'")
    desk.claim(rows=1)
    for _ in range(2):
        desk.rescuer.rescue()
    assert desk.report.rescued == 2
    assert states(conn) == {"PENDING": 2, "PROCESSING": 1}


def test_a_living_relay_is_left_alone(conn: Conn, open_desk: OpenDesk) -> None:
    one, two = open_desk("one"), open_desk("two")
    insert(conn, 3)
    one.claim()
    two.rescuer._free_since[one.relay_id] = float("-inf")
    two.rescuer.rescue()
    assert states(conn) == {"PROCESSING": 3}


def _acks(batch: Batch) -> list[Ack]:
    return [Ack(row[0], 0, 0, batch) for row in batch.rows]


def _failure(outbox_id: int, batch: Batch) -> Failure:
    return Failure(outbox_id, "UNKNOWN", "because", final=False, batch=batch)
