"""A failed row holds up its own key and no other; its followers come back in order, in steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge.relay import holds
from bridge.relay.settlement import Failure
from bridge.routing import OnFailure, Router, Rule
from tests.claims.desk import InBackground, ids
from tests.claims.outbox import count, faults, insert, states, waits
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from bridge.relay.batch import Batch
    from tests.claims.conftest import OpenConnection, OpenDesk
    from tests.claims.desk import Desk

Conn = psycopg.Connection[Any]

RETRY = "update app_outbox set status = 'PENDING', next_run_at = now() where outbox_id = %s"


@pytest.fixture
def desk(desk: Desk) -> Desk:
    desk.take_all_lanes()
    return desk


def fail_head(conn: Conn, desk: Desk, key: str = "k", *, final: bool = True) -> int:
    """Let the first row of a key fail; returns its id."""
    (head,) = insert(conn, ordering_key=key)
    batch = desk.claim_ordered()
    assert ids(batch) == [head]
    desk.fail(batch, final=final)
    desk.settlement.delete_claims([batch])
    return head


def drain(desk: Desk, rows: int = 1000) -> list[int]:
    """Claim, acknowledge and let followers come back until nothing is left; ids in that order."""
    found: list[int] = []
    while True:
        batch = desk.claim_ordered(rows=rows)
        desk.settle(batch)
        came = desk.return_followers(1)
        found += ids(batch)
        if not batch.rows and not came and not parked(desk.session.connection):
            return found


def parked(conn: Conn) -> int:
    row = conn.execute("select count(*) from app_outbox_queue where parked is null").fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("final", [True, False], ids=["failed", "waits for its backoff"])
def test_followers_of_a_failed_row_wait_and_other_keys_go(
    conn: Conn, desk: Desk, *, final: bool
) -> None:
    fail_head(conn, desk, final=final)
    followers = insert(conn, 3, ordering_key="k")
    others = insert(conn, 3, ordering_key="other")
    elsewhere = insert(conn, 2, ordering_key="k", destination="invoices")
    assert ids(desk.claim_ordered()) == sorted(others + elsewhere)
    assert ids(desk.claim_ordered()) == []
    # Met once: nothing looks at them again.
    assert conn.execute(
        "select array_agg(outbox_id order by outbox_id) from app_outbox_queue where parked = 'k'"
    ).fetchone() == (followers,)
    assert faults(conn) == {}


def test_a_key_whose_hash_is_the_same_is_not_held(conn: Conn, desk: Desk) -> None:
    found = conn.execute(
        "select array_agg('key-' || n) from generate_series(1, 300000) as n "
        "group by hashtext('key-' || n) having count(*) > 1 limit 1"
    ).fetchone()
    assert found is not None
    stuck, innocent = found[0][:2]
    head = fail_head(conn, desk, stuck)
    followers = insert(conn, 2, ordering_key=stuck)
    rows = insert(conn, 2, ordering_key=innocent)
    batch = desk.claim_ordered()
    assert ids(batch) == rows
    # Now both are held, and only one is let go.
    desk.fail(batch, final=True)
    behind = insert(conn, 2, ordering_key=innocent)
    assert ids(desk.claim_ordered()) == []
    conn.execute("update app_outbox set status = 'CANCELLED' where outbox_id = any(%s)", [rows])
    assert desk.return_followers() == 2
    assert ids(desk.claim_ordered()) == behind
    conn.execute("update app_outbox set status = 'CANCELLED' where outbox_id = %s", [head])
    desk.return_followers()
    assert ids(desk.claim_ordered()) == followers


@pytest.mark.parametrize(
    "statement",
    [
        "update app_outbox set status = 'SENT' where outbox_id = %s",
        "update app_outbox set status = 'CANCELLED' where outbox_id = %s",
        "delete from app_outbox where outbox_id = %s",
        "update app_outbox set ordering_key = 'other' where outbox_id = %s",
        "update app_outbox set ordering_key = null where outbox_id = %s",
        "update app_outbox set destination = 'invoices' where outbox_id = %s",
        "update app_outbox_hold set released_at = now() where outbox_id = %s",
    ],
)
def test_plain_sql_about_the_head_frees_its_key(conn: Conn, desk: Desk, statement: str) -> None:
    head = fail_head(conn, desk)
    followers = insert(conn, 5, ordering_key="k")
    assert ids(desk.claim_ordered()) == []
    conn.execute(statement, [head])
    assert desk.return_followers() == 5
    assert ids(desk.claim_ordered()) == followers
    assert count(conn, "app_outbox_hold") == 0
    assert faults(conn) == {}


def test_a_retried_head_goes_alone_and_its_followers_after_it(conn: Conn, desk: Desk) -> None:
    head = fail_head(conn, desk)
    followers = insert(conn, 3, ordering_key="k")
    assert ids(desk.claim_ordered()) == []
    conn.execute(RETRY, [head])
    late = insert(conn, 2, ordering_key="k")
    batch = desk.claim_ordered()
    assert ids(batch) == [head]
    assert desk.return_followers() == 0
    assert ids(desk.claim_ordered()) == []
    desk.settle(batch)
    assert drain(desk) == followers + late
    assert count(conn, "app_outbox_hold") == 0
    assert faults(conn) == {}


def test_a_head_that_fails_again_holds_on(conn: Conn, desk: Desk) -> None:
    head = fail_head(conn, desk)
    insert(conn, 2, ordering_key="k")
    for _ in range(3):
        conn.execute(RETRY, [head])
        batch = desk.claim_ordered()
        assert ids(batch) == [head]
        desk.fail(batch, final=True)
        assert desk.return_followers() == 0
        assert ids(desk.claim_ordered()) == []
    assert count(conn, "app_outbox_hold") == 1


def test_earlier_rows_of_the_key_are_not_held(conn: Conn, desk: Desk) -> None:
    early = insert(conn, 2, ordering_key="k", next_run_at="now() + interval '1 hour'")
    fail_head(conn, desk)
    conn.execute("update app_outbox set next_run_at = now() where outbox_id = any(%s)", [early])
    assert ids(desk.claim_ordered()) == early


def test_several_failed_rows_of_a_key_go_one_after_the_other(conn: Conn, desk: Desk) -> None:
    rows = insert(conn, 6, ordering_key="k")
    desk.fail(desk.claim_ordered(), final=True)
    assert count(conn, "app_outbox_hold") == 6
    tail = insert(conn, 2, ordering_key="k")
    conn.execute(
        "update app_outbox set status = 'PENDING', next_run_at = now() where status = 'FAILED'"
    )
    found = []
    for _ in range(6):
        batch = desk.claim_ordered()
        assert len(batch.rows) == 1, "a failed row takes nothing along"
        found += ids(batch)
        desk.settle(batch)
        # The next one that failed comes back, and nothing behind it.
        assert desk.return_followers() == (1 if len(found) < len(rows) else len(tail))
    assert found == rows
    assert drain(desk) == tail


def test_of_failures_of_one_key_only_the_first_is_charged(conn: Conn, desk: Desk) -> None:
    rows = insert(conn, 4, ordering_key="k")
    other = insert(conn, 1, ordering_key="other")
    batch = desk.claim_ordered()
    # The third can never be sent; the later half is reported in a second round.
    rounds = [
        [Failure(row, "UNKNOWN", "because", row == rows[2], batch) for row in part]
        for part in ((rows[0], rows[1], *other), (rows[2], rows[3]))
    ]
    for failures in rounds:
        assert desk.settlement.mark_failed(failures).lost == []
    charged = conn.execute("select outbox_id from app_outbox where retry_count = 1 order by 1")
    assert [row[0] for row in charged] == [rows[0], rows[2], *other]
    assert states(conn) == {"PENDING": 4, "FAILED": 1}
    assert ids(desk.claim_ordered()) == []
    assert faults(conn) == {}


def test_under_skip_nothing_is_held(conn: Conn, desk: Desk) -> None:
    desk.settlement.router = Router([Rule("orders", on_failure=OnFailure.SKIP)])
    rows = insert(conn, 3, ordering_key="k")
    batch = desk.claim_ordered()
    desk.settlement.mark_failed([Failure(rows[0], "UNKNOWN", "because", final=True, batch=batch)])
    assert count(conn, "app_outbox_hold") == 0
    more = insert(conn, 2, ordering_key="k")
    assert ids(desk.claim_ordered()) == more
    assert states(conn) == {"FAILED": 1, "PROCESSING": 4}


def test_a_row_scheduled_for_later_holds_nobody(conn: Conn, desk: Desk) -> None:
    insert(conn, ordering_key="k", next_run_at="now() + interval '1 hour'")
    rows = insert(conn, 2, ordering_key="k")
    assert ids(desk.claim_ordered()) == rows


def test_followers_come_back_in_steps_and_none_is_overtaken(
    conn: Conn, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holds, "STEP", 40)
    monkeypatch.setattr(holds, "_KEY_STEP", 10)
    head = fail_head(conn, desk)
    expected = insert(conn, 35, ordering_key="k")
    assert ids(desk.claim_ordered()) == []
    conn.execute("update app_outbox set status = 'CANCELLED' where outbox_id = %s", [head])
    found: list[int] = []
    for _ in range(8):
        expected += insert(conn, 2, ordering_key="k")
        assert desk.return_followers(1) <= 10
        batch = desk.claim_ordered()
        found += ids(batch)
        desk.settle(batch)
    found += drain(desk)
    assert found == expected
    assert count(conn, "app_outbox_hold") == 0


def test_the_return_of_many_stalls_no_other_key(
    conn: Conn, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holds, "STEP", 20)
    monkeypatch.setattr(holds, "_KEY_STEP", 5)
    heads = [fail_head(conn, desk, key) for key in ("much", "little")]
    insert(conn, 60, ordering_key="much")
    little = insert(conn, 2, ordering_key="little")
    while desk.claim_ordered().rows or parked(conn):
        pass
    conn.execute("update app_outbox set status = 'CANCELLED' where outbox_id = any(%s)", [heads])
    desk.return_followers(1)
    assert set(ids(desk.claim_ordered())) >= set(little)


def test_a_returned_row_that_fails_holds_those_behind_it(conn: Conn, desk: Desk) -> None:
    head = fail_head(conn, desk)
    rows = insert(conn, 4, ordering_key="k")
    desk.claim_ordered()
    conn.execute("update app_outbox set status = 'CANCELLED' where outbox_id = %s", [head])
    desk.return_followers()
    batch = desk.claim_ordered(rows=2)
    failures = [Failure(rows[1], "UNKNOWN", "because", final=True, batch=batch)]
    desk.settlement.mark_failed(failures)
    desk.settle(batch, [rows[0]])
    assert ids(desk.claim_ordered()) == []
    conn.execute(RETRY, [rows[1]])
    assert drain(desk) == rows[1:]


def test_a_hold_that_nobody_released_is_found(conn: Conn, desk: Desk) -> None:
    """A settle that began before the hold was there cannot see it."""
    head = fail_head(conn, desk)
    followers = insert(conn, 2, ordering_key="k")
    desk.claim_ordered()
    conn.execute("set session_replication_role = replica")
    conn.execute("update app_outbox set status = 'SENT' where outbox_id = %s", [head])
    conn.execute("set session_replication_role = origin")
    assert desk.return_followers() == 0
    assert desk.claimer.holds.check(range(64)) == 1
    assert desk.claimer.holds.check(range(64)) == 0
    desk.return_followers()
    assert ids(desk.claim_ordered()) == followers


def test_living_holds_are_left_alone_by_the_check(conn: Conn, desk: Desk) -> None:
    for number in range(7):
        fail_head(conn, desk, f"k-{number}", final=bool(number % 2))
    assert desk.claimer.holds.check(range(64)) == 0
    assert count(conn, "app_outbox_hold") == 7


def test_followers_of_a_lost_hold_come_back_by_repair(conn: Conn, desk: Desk) -> None:
    fail_head(conn, desk)
    rows = insert(conn, 3, ordering_key="k")
    desk.claim_ordered()
    conn.execute("delete from app_outbox_hold")
    found = desk.reconciler.reconcile()
    assert (found.queued, found.adopted) == (0, 1)
    assert desk.reconciler.reconcile().adopted == 0
    desk.return_followers()
    assert ids(desk.claim_ordered()) == rows
    assert faults(conn) == {}


def test_repair_leaves_held_followers_where_they_are(conn: Conn, desk: Desk) -> None:
    fail_head(conn, desk)
    insert(conn, 3, ordering_key="k")
    desk.claim_ordered()
    found = desk.reconciler.reconcile()
    assert (found.queued, found.released, found.adopted) == (0, 0, 0)
    assert ids(desk.claim_ordered()) == []
    assert count(conn, "app_outbox_queue") == 3


def test_another_owner_of_the_lane_goes_on_where_the_first_stopped(
    conn: Conn, open_desk: OpenDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holds, "_KEY_STEP", 3)
    one, two = open_desk("one"), open_desk("two")
    one.take_all_lanes()
    head = fail_head(conn, one)
    rows = insert(conn, 8, ordering_key="k")
    one.claim_ordered()
    conn.execute("update app_outbox set status = 'CANCELLED' where outbox_id = %s", [head])
    assert one.return_followers(1) == 3
    assert two.return_followers() == 0
    one.session.run("free_lanes", {"lanes": list(range(64)), "relay_id": one.relay_id})
    two.take_all_lanes()
    assert one.return_followers() == 0
    assert drain(two) == rows


def test_a_lane_does_not_move_while_followers_are_parked_or_come_back(
    conn: Conn, open_desk: OpenDesk
) -> None:
    one, two = open_desk("one", lock_timeout=30), open_desk("two", lock_timeout=30)
    one.take_all_lanes()
    head = fail_head(conn, one)
    rows = insert(conn, 3, ordering_key="k")
    everything = {"lanes": list(range(64)), "relay_id": one.relay_id}
    for work in (one.claim_ordered, one.return_followers):
        with one.session.connection.transaction():
            work()
            move = InBackground(lambda: two.session.run("free_lanes", everything))
            wait_until(lambda: waits(conn), "the hand-over waits")
        move.result()
        one.take_all_lanes()
        conn.execute("update app_outbox set status = 'CANCELLED' where outbox_id = %s", [head])
    one.session.run("free_lanes", everything)
    two.take_all_lanes()
    assert drain(two) == rows


def test_a_head_cancelled_while_its_followers_are_parked_lets_them_go(
    conn: Conn, connect: OpenConnection, desk: Desk
) -> None:
    head = fail_head(conn, desk)
    rows = insert(conn, 3, ordering_key="k")
    person = connect(autocommit=False)
    cancel = "update app_outbox set status = 'CANCELLED' where outbox_id = %s"
    person.execute(cancel, [head])
    assert ids(desk.claim_ordered()) == []  # parked behind a head that is just being cancelled
    assert desk.return_followers() == 0
    person.commit()
    assert desk.return_followers() == 3
    assert ids(desk.claim_ordered()) == rows
    assert count(conn, "app_outbox_hold") == 0


def test_a_head_cancelled_between_two_steps_of_parking_strands_nobody(
    conn: Conn, desk: Desk
) -> None:
    head = fail_head(conn, desk)
    rows = insert(conn, 3, ordering_key="k")
    with desk.session.connection.transaction():
        assert ids(desk.claim_ordered()) == []
        conn.execute("update app_outbox set status = 'CANCELLED' where outbox_id = %s", [head])
    assert drain(desk) == rows


def test_a_hold_that_somebody_has_locked_stops_no_settle(
    conn: Conn, connect: OpenConnection, desk: Desk
) -> None:
    head = fail_head(conn, desk)
    rows = insert(conn, 2, ordering_key="k")
    conn.execute(RETRY, [head])
    batch = desk.claim_ordered()
    person = connect(autocommit=False)
    person.execute("select from app_outbox_hold for update")
    assert desk.settle(batch) == 1
    assert desk.claimer.holds.check(range(64)) == 0
    person.rollback()
    assert desk.claimer.holds.check(range(64)) == 1
    assert drain(desk) == rows


class Watched:
    """A guard that notes what the rows are when it is taken and given back."""

    def __init__(self, conn: Conn) -> None:
        self._conn = conn
        self.seen: list[dict[str, int]] = []

    def __enter__(self) -> None:
        self.seen.append(states(self._conn))

    def __exit__(self, *_: object) -> None:
        self.seen.append(states(self._conn))


def test_a_failure_of_an_ordered_row_is_written_under_the_guard(conn: Conn, desk: Desk) -> None:
    """Else a claim without the hold would enter the flight after the failed row left it."""
    desk.settlement.guard = guard = Watched(conn)
    insert(conn, ordering_key="k")
    desk.fail(desk.claim_ordered(), final=True)
    assert guard.seen == [{"PROCESSING": 1}, {"FAILED": 1}]
    insert(conn)
    desk.fail(desk.claim(), final=True)
    assert len(guard.seen) == 2


def test_ordered_rows_are_claimed_and_enter_the_flight_under_the_guard(
    conn: Conn, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = desk.claimer.holds.guard
    guarded: list[tuple[str, bool]] = []
    rows, enter = desk.session.rows, desk.flight.enter

    def watched_rows(name: str, parameters: Any = None) -> Any:
        guarded.append((name, guard.locked()))
        return rows(name, parameters)

    def watched_enter(batch: Batch) -> None:
        guarded.append(("enter", guard.locked()))
        enter(batch)

    monkeypatch.setattr(desk.session, "rows", watched_rows)
    monkeypatch.setattr(desk.flight, "enter", watched_enter)
    fail_head(conn, desk)
    insert(conn, ordering_key="other")
    assert len(desk.look_ordered(10)) == 1
    assert set(guarded) >= {(name, True) for name in ("return_followers", "claim_ordered", "enter")}
    assert guarded[-2:] == [("claim_ordered", True), ("enter", True)]


def test_a_quota_bounds_a_destination_and_a_closed_one_is_not_looked_at(
    conn: Conn, desk: Desk
) -> None:
    for destination in ("a", "b", "c"):
        for key in range(6):
            insert(conn, ordering_key=f"{key}", destination=destination)
    batch = desk.claim_ordered(destinations=["a", "c"], quotas=[2, 10])
    taken = [row[1] for row in batch.rows]
    assert (taken.count("a"), taken.count("b"), taken.count("c")) == (2, 0, 6)


def test_many_ordered_destinations_each_get_their_turn(conn: Conn, desk: Desk) -> None:
    names = [f"d-{number:03d}" for number in range(60)]
    for name in names:
        insert(conn, 3, ordering_key=name, destination=name)
    conn.execute(RETRY.replace("= %s", "> 0"))
    found: set[int] = set()
    for _ in range(60):
        found.update(desk.look_ordered(10))
        if len(found) == 180:
            return
        desk.settle_all()
    pytest.fail("a destination was never reached")
