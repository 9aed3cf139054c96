"""Rows with an ordering key: in the order of outbox_id, by one relay at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge.relay import lanes
from tests.claims.desk import InBackground, ids
from tests.claims.outbox import count, insert, states, waits
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.claims.conftest import OpenConnection, OpenDesk
    from tests.claims.desk import Desk

Conn = psycopg.Connection[Any]


@pytest.fixture(autouse=True)
def always_balance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each look at the lanes balance them."""
    monkeypatch.setattr(lanes, "BALANCE_INTERVAL", 0.0)


def lane_of(conn: Conn, key: str) -> int:
    row = conn.execute("select hashtext(%s) & 63", [key]).fetchone()
    assert row is not None
    return int(row[0])


def keys_in_lane(conn: Conn, lane: int, count: int) -> list[str]:
    return [
        row[0]
        for row in conn.execute(
            "select 'key-' || n from generate_series(1, 100000) as n "
            "where hashtext('key-' || n) & 63 = %s limit %s",
            [lane, count],
        )
    ]


def owners(conn: Conn) -> dict[int | None, int]:
    return dict(
        conn.execute("select relay_id, count(*) from app_outbox_lane group by 1").fetchall()
    )


def test_rows_of_a_key_are_claimed_in_the_order_of_their_ids(conn: Conn, desk: Desk) -> None:
    desk.take_all_lanes()
    rows = [
        insert(conn, ordering_key=f"k-{n % 7}", next_run_at=f"now() - interval '{n} s'")[0]
        for n in range(70)
    ]
    lane = lane_of(conn, "k-3")
    first = [row for _ in range(3) for row in ids(desk.claim_ordered([lane], rows=4))]
    assert first == sorted(first)
    assert sorted(first + ids(desk.claim_ordered())) == rows
    of_key: dict[str, list[int]] = {}
    for outbox_id, key in conn.execute("select outbox_id, ordering_key from app_outbox"):
        of_key.setdefault(key, []).append(outbox_id)
    assert {len(of) for of in of_key.values()} == {10}


def test_a_row_that_is_not_due_does_not_exist_for_the_order(conn: Conn, desk: Desk) -> None:
    desk.take_all_lanes()
    insert(conn, ordering_key="k", next_run_at="now() + interval '1 hour'")
    insert(conn, ordering_key="k", next_run_at="'infinity'::timestamptz")
    rows = insert(conn, 2, ordering_key="k", next_run_at="'-infinity'::timestamptz")
    assert ids(desk.claim_ordered()) == rows


def test_followers_of_a_locked_head_are_left_out(
    conn: Conn, connect: OpenConnection, desk: Desk
) -> None:
    desk.take_all_lanes()
    stuck, other = keys_in_lane(conn, 5, 2)
    head = insert(conn, 3, ordering_key=stuck)
    beside = insert(conn, 3, ordering_key=other)
    tail = insert(conn, 2, ordering_key=stuck)
    person = connect(autocommit=False)
    person.execute("select from app_outbox where outbox_id = %s for update", [head[1]])
    assert ids(desk.claim_ordered()) == [head[0], *beside]
    assert ids(desk.claim_ordered()) == []
    person.rollback()
    assert ids(desk.claim_ordered()) == [*head[1:], *tail]


def test_a_head_that_is_being_deleted_holds_its_followers_until_it_is_gone(
    conn: Conn, connect: OpenConnection, desk: Desk
) -> None:
    desk.take_all_lanes()
    rows = insert(conn, 3, ordering_key="k")
    person = connect(autocommit=False)
    person.execute("delete from app_outbox where outbox_id = %s", [rows[0]])
    assert ids(desk.claim_ordered()) == []
    person.commit()
    assert ids(desk.claim_ordered()) == rows[1:]


@pytest.mark.parametrize("status", ["SENT", "FAILED", "CANCELLED"])
def test_heads_that_left_pending_hold_nobody(conn: Conn, desk: Desk, status: str) -> None:
    desk.take_all_lanes()
    rows = insert(conn, 3, ordering_key="k")
    conn.execute("update app_outbox set status = %s where outbox_id = %s", [status, rows[0]])
    assert ids(desk.claim_ordered()) == rows[1:]


def test_lanes_of_another_relay_are_not_claimed_from(conn: Conn, open_desk: OpenDesk) -> None:
    mine, other = open_desk("mine"), open_desk("other")
    mine.take_all_lanes()
    rows = insert(conn, 3, ordering_key="k")
    assert ids(other.claim_ordered()) == []
    mine.session.run("free_lanes", {"lanes": list(range(64)), "relay_id": mine.relay_id})
    assert ids(mine.claim_ordered()) == []
    other.take_all_lanes()
    assert ids(mine.claim_ordered()) == []
    assert ids(other.claim_ordered()) == rows


def test_a_lane_that_changes_hands_while_a_claim_waits_is_not_claimed_from(
    conn: Conn, connect: OpenConnection, open_desk: OpenDesk
) -> None:
    desk = open_desk(lock_timeout=30)
    desk.take_all_lanes()
    insert(conn, 3, ordering_key="k")
    thief = connect(autocommit=False)
    thief.execute("update app_outbox_lane set relay_id = -1, epoch = epoch + 1")
    claim = InBackground(desk.claim_ordered)
    wait_until(lambda: waits(conn), "the claim waits for its lanes")
    thief.commit()
    assert ids(claim.result()) == []
    assert states(conn) == {"PENDING": 3}


def test_every_lane_gets_its_turn_beside_backlogged_ones(conn: Conn, desk: Desk) -> None:
    for lane in range(64):
        (key,) = keys_in_lane(conn, lane, 1)
        insert(conn, 1 if lane == 63 else 40, ordering_key=key)
    last = set(insert(conn, 1, ordering_key=keys_in_lane(conn, 63, 1)[0]))
    found: set[int] = set()
    for _ in range(64):
        found.update(desk.look_ordered(10))
        if found >= last:
            return
    pytest.fail("a lane was never reached")


def test_a_backlog_of_stale_ordered_entries_counts_as_found(conn: Conn, desk: Desk) -> None:
    insert(conn, 30, ordering_key="k")
    conn.execute("update app_outbox set status = 'CANCELLED'")
    desk.lanes.active()
    desk.claimer._search(force=True)
    thrown_away = 0
    while found := desk.claimer._look_ordered(20):
        thrown_away += found
    assert thrown_away == 30
    assert count(conn, "app_outbox_queue") == 0


def test_lanes_are_shared_equally_as_relays_come_and_go(conn: Conn, open_desk: OpenDesk) -> None:
    one = open_desk("one")
    assert len(one.lanes.active()) == 64
    two = open_desk("two")
    _balance([one, two])
    assert owners(conn) == {one.relay_id: 32, two.relay_id: 32}
    three = open_desk("three")
    _balance([one, two, three])
    shares = owners(conn)
    assert None not in shares
    assert sorted(shares.values()) in ([20, 22, 22], [21, 21, 22])
    two.registration.leave()
    two.close()
    two.dead = True
    _balance([one, three])
    assert owners(conn) == {one.relay_id: 32, three.relay_id: 32}


def test_a_lane_is_freed_only_when_none_of_its_rows_is_in_flight(
    conn: Conn, open_desk: OpenDesk
) -> None:
    one = open_desk("one")
    one.lanes.active()
    for lane in range(64):
        insert(conn, ordering_key=keys_in_lane(conn, lane, 1)[0])
    batch = one.claim_ordered()
    assert batch.lanes == set(range(64))
    one.flight.enter(batch)
    two = open_desk("two")
    _balance([one, two])
    assert owners(conn) == {one.relay_id: 64}
    assert len(one.lanes.active()) == 32
    one.settle_all()
    _balance([one, two])
    assert owners(conn) == {one.relay_id: 32, two.relay_id: 32}


def test_a_relay_that_leaves_with_claims_keeps_its_lanes_until_they_are_taken_back(
    conn: Conn, open_desk: OpenDesk
) -> None:
    one = open_desk("one")
    one.lanes.active()
    rows = insert(conn, 3, ordering_key="k")
    batch = one.claim_ordered()
    relay_id = one.relay_id
    one.close()
    one.dead = True
    two = open_desk("two")
    _balance([two])
    assert owners(conn) == {relay_id: 64}
    two.rescuer._free_since[relay_id] = float("-inf")
    two.rescuer.rescue()
    assert two.report.rescued == 3
    _balance([two])
    assert owners(conn) == {two.relay_id: 64}
    assert ids(two.claim_ordered()) == rows
    assert ids(batch) == rows


def test_a_dead_relays_lanes_move_in_the_transaction_that_takes_its_claims_back(
    conn: Conn, connect: OpenConnection, open_desk: OpenDesk
) -> None:
    one, two = open_desk("one"), open_desk("two")
    one.take_all_lanes()
    rows = insert(conn, 3, ordering_key="k")
    one.claim_ordered()
    one.die()
    # Somebody looks at one of the rows: it cannot be taken back yet.
    person = connect(autocommit=False)
    person.execute("select from app_outbox where outbox_id = %s for update", [rows[0]])
    two.rescuer._free_since[one.relay_id] = float("-inf")
    two.rescuer.rescue()
    assert states(conn) == {"PROCESSING": 1, "PENDING": 2}
    assert owners(conn) == {one.relay_id: 64}
    two.lanes.active()
    assert ids(two.claim_ordered()) == []
    person.rollback()
    two.rescuer.rescue()
    two.lanes.active()
    assert owners(conn) == {two.relay_id: 64}
    assert ids(two.claim_ordered()) == rows


def test_a_claim_that_a_frozen_relay_is_just_making_is_not_left_behind_by_its_burial(
    conn: Conn, open_desk: OpenDesk
) -> None:
    thawing, other = open_desk("thawing"), open_desk("other", lock_timeout=30)
    thawing.take_all_lanes()
    rows = insert(conn, 3, ordering_key="k")
    thawing.freeze()
    conn.execute(
        "update app_outbox_relay set heartbeat_at = now() - interval '1 day' where relay_id = %s",
        [thawing.relay_id],
    )
    with thawing.session.connection.transaction():
        assert ids(thawing.claim_ordered()) == rows
        burial = InBackground(other.rescuer.rescue)
        wait_until(lambda: waits(conn), "the burial waits for the claim")
    burial.result()
    assert other.report.rescued == 3
    assert states(conn) == {"PENDING": 3}
    assert owners(conn) == {None: 64}


def test_a_lane_locked_by_somebody_stops_no_relay(
    conn: Conn, connect: OpenConnection, desk: Desk
) -> None:
    desk.take_all_lanes()
    rows = insert(conn, 3, ordering_key="k")
    person = connect(autocommit=False)
    person.execute("lock table app_outbox_lane in access exclusive mode")
    work = InBackground(desk.claimer.run)
    wait_until(lambda: waits(conn), "the claimer waits for the lanes")
    person.rollback()
    wait_until(lambda: desk.flight.rows == 3, "the rows are claimed")
    desk.claimer.stop.set()
    work.result()
    assert [ids(batch) for batch in desk.flight.batches()] == [rows]


def _balance(desks: Iterable[Desk]) -> None:
    for _ in range(3):
        for desk in desks:
            desk.lanes.active()


def test_keys_behind_a_locked_head_with_many_followers_are_reached(
    conn: Conn, connect: OpenConnection, desk: Desk
) -> None:
    """More followers than one look takes from a lane must not hide the lane's other keys."""
    desk.take_all_lanes()
    stuck, other = keys_in_lane(conn, 5, 2)
    head, *_ = insert(conn, 40, ordering_key=stuck)
    behind = insert(conn, ordering_key=other)
    person = connect(autocommit=False)
    person.execute("select from app_outbox where outbox_id = %s for update", [head])
    found: list[int] = []
    for _ in range(8):
        found += desk.look_ordered(64)  # four rows of a lane at first
    assert found == behind


def test_nothing_is_claimed_from_lanes_whose_rows_are_being_given_back(
    conn: Conn, desk: Desk
) -> None:
    desk.take_all_lanes()
    (given_back, elsewhere) = (keys_in_lane(conn, lane, 1)[0] for lane in (5, 6))
    insert(conn, ordering_key=given_back)
    first = desk.look_ordered(64)
    desk.flight.hold_lanes(frozenset({5}))
    insert(conn, ordering_key=given_back)
    other = insert(conn, ordering_key=elsewhere)
    assert first
    assert desk.look_ordered(64) == other


def test_one_keys_backlog_fills_whole_batches(conn: Conn, desk: Desk) -> None:
    insert(conn, 3000, ordering_key="k")
    desk.claimer._search(force=True)
    sizes = []
    for _ in range(20):
        sizes.append(len(desk._looked(lambda: desk.claimer._look_ordered(400))))
        desk.settle_all()
    assert max(sizes) == 400
    assert sum(sizes) == 3000
