"""Cursors and floors spare the claim a walk; they never make it skip a row."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge.relay import targets
from tests.claims.outbox import insert, states
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from tests.claims.conftest import OpenConnection
    from tests.claims.desk import Desk

Conn = psycopg.Connection[Any]

LONG_AGO = "now() - interval '1 hour'"


class Clock:
    """The claimer's own clock, moved by the test alone."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(targets, "time", clock)
    return clock


@pytest.fixture
def slow_looks(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Let every look seem to walk over dead entries, as under a held snapshot."""
    monkeypatch.setattr(targets, "SLOW_LOOK", 0.0)
    return clock


@pytest.fixture
def held_snapshot(connect: OpenConnection) -> Conn:
    """A transaction that only reads, and keeps what it sees."""
    holder = connect(autocommit=False)
    holder.execute("set transaction isolation level repeatable read")
    holder.execute("select count(*) from app_outbox")
    return holder


def open_writer(connect: OpenConnection) -> tuple[Conn, int]:
    """A transaction that has inserted a row and stays open."""
    writer = connect(autocommit=False)
    return writer, insert(writer)[0]


def test_a_row_that_commits_late_behind_a_full_batch_is_claimed_when_the_backlog_ends(
    conn: Conn, connect: OpenConnection, desk: Desk, clock: Clock
) -> None:
    """watermill#311: what committed behind the reader was never read."""
    writer, late = open_writer(connect)
    rows = insert(conn, 25)
    assert late < rows[0]
    assert desk.look(10) == rows[:10]
    assert desk.look(10) == rows[10:20]
    writer.commit()
    assert desk.look(10) == rows[20:]
    assert desk.look(10) == [late]


def test_a_row_that_commits_late_does_not_wait_for_the_end_of_a_backlog(
    conn: Conn, connect: OpenConnection, desk: Desk, clock: Clock
) -> None:
    writer, late = open_writer(connect)
    rows = insert(conn, 100)
    assert desk.look(10) == rows[:10]
    clock.now += 0.5
    assert desk.look(10) == rows[10:20]
    writer.commit()
    clock.now += 1.0
    assert desk.look(10) == [late, *rows[20:29]]
    assert desk.look(10) == rows[29:39]


def test_rows_taken_back_from_a_dead_relay_do_not_wait_for_the_end_of_a_backlog(
    conn: Conn, desk: Desk, clock: Clock
) -> None:
    rows = insert(conn, 100)
    batch = desk.claim(rows=10)
    assert desk.look(10) == rows[10:20]
    desk.rescue(batch)
    clock.now += 2.0
    assert desk.look(10) == rows[:10]


def test_a_destination_whose_queue_was_empty_a_moment_ago_needs_no_new_search(
    conn: Conn, desk: Desk
) -> None:
    """At a few hundred rows a second the queue is empty at most searches."""
    assert len(desk.look(10)) == 0
    (first,) = insert(conn)
    assert desk.look(10) == [first]
    assert desk.look(10) == []  # this search finds no destination at all
    (second,) = insert(conn)
    assert desk.look_again(10) == [second]


def test_a_row_that_commits_late_behind_a_short_batch_is_claimed_next(
    conn: Conn, connect: OpenConnection, desk: Desk, clock: Clock
) -> None:
    writer, late = open_writer(connect)
    rows = insert(conn, 5)
    assert desk.look(10) == rows
    assert desk.look(10) == []
    writer.commit()
    assert desk.look(10) == [late]


def test_many_late_rows_beside_a_busy_destination_are_all_claimed(
    conn: Conn, connect: OpenConnection, desk: Desk, clock: Clock
) -> None:
    writers = [open_writer(connect) for _ in range(5)]
    expected = [row for _, row in writers] + insert(conn, 60)
    found: list[int] = []
    for number in range(20):
        if number % 2 and writers:
            writers.pop()[0].commit()
        clock.now += 0.2
        found += desk.look(7)
    assert sorted(found) == sorted(expected)


def test_floor_finds_a_writer_that_began_before_it_was_read(
    conn: Conn, connect: OpenConnection, desk: Desk, slow_looks: Clock, held_snapshot: Conn
) -> None:
    writer, late = open_writer(connect)
    _enter_floor_mode(conn, desk)
    writer.commit()
    assert desk.look(10) == [late]


def test_floor_finds_a_writer_that_had_written_nothing_when_it_was_read(
    conn: Conn, connect: OpenConnection, desk: Desk, slow_looks: Clock, held_snapshot: Conn
) -> None:
    writer = connect(autocommit=False)
    writer.execute("select now()")
    _enter_floor_mode(conn, desk)
    (late,) = insert(writer)
    writer.commit()
    assert desk.look(10) == [late]


def test_floor_finds_rows_of_transactions_that_begin_later(
    conn: Conn, desk: Desk, slow_looks: Clock, held_snapshot: Conn
) -> None:
    _enter_floor_mode(conn, desk)
    for _ in range(20):
        rows = insert(conn)
        assert desk.look(10) == rows


def test_floor_loses_no_row_while_several_destinations_are_backlogged(
    conn: Conn, desk: Desk, slow_looks: Clock, held_snapshot: Conn
) -> None:
    expected = [
        row
        for name, rows in (("a", 50), ("b", 50), ("c", 50), ("d", 3))
        for row in insert(conn, rows, destination=name, next_run_at=LONG_AGO)
    ]
    found: list[int] = []
    # The clock stands still, so that no walk over everything comes to help.
    for _ in range(40):
        found += desk.look(12)
    assert sorted(found) == expected


def test_floor_loses_no_row_behind_stale_entries(
    conn: Conn, desk: Desk, slow_looks: Clock, held_snapshot: Conn
) -> None:
    insert(conn, 50, next_run_at=LONG_AGO)
    conn.execute("update app_outbox set status = 'CANCELLED'")
    rows = insert(conn, 3, next_run_at=LONG_AGO)
    found: list[int] = []
    for _ in range(12):
        found += desk.look(10)
    assert sorted(found) == rows


def test_what_lies_below_the_floor_is_found_by_the_walk_over_everything(
    conn: Conn, desk: Desk, slow_looks: Clock, held_snapshot: Conn
) -> None:
    (in_flight,) = insert(conn)
    batch = desk.claim()
    _enter_floor_mode(conn, desk)
    desk.rescue(batch)
    below = insert(conn, 2, next_run_at="'-infinity'::timestamptz")
    slow_looks.now += 61.0
    assert desk.look(10) == [in_flight, *below]


def test_rows_this_relay_takes_back_are_found_at_once_below_the_floor(
    conn: Conn, desk: Desk, slow_looks: Clock, held_snapshot: Conn
) -> None:
    (in_flight,) = insert(conn, next_run_at=LONG_AGO)
    batch = desk.claim()
    _enter_floor_mode(conn, desk)
    desk.rescue(batch)
    assert desk.look(10) == []  # the clock stands still: no walk is due
    desk.claimer.walk_soon()  # what the rescuer calls
    assert desk.look(10) == [in_flight]


def test_floor_follows_the_oldest_transaction_that_may_still_commit_a_row(
    conn: Conn, connect: OpenConnection, desk: Desk, held_snapshot: Conn
) -> None:
    wrote = connect(autocommit=False)
    wrote.execute("set transaction isolation level repeatable read")  # keeps a snapshot as well
    insert(wrote)
    may_write = connect(autocommit=False)
    may_write.execute("select now()")
    began = {c: _began(conn, c) for c in (wrote, may_write)}
    assert desk.session.value("find_writer_floor") < _began(conn, held_snapshot)
    second = 1_000_000
    wait_until(
        lambda: _now(conn) > began[may_write] + 5.5 * second,
        "no transaction is young enough to be taken into account for its age alone",
    )
    assert desk.session.value("find_writer_floor") == began[wrote] - second
    wrote.commit()
    assert desk.session.value("find_writer_floor") == began[may_write] - second
    may_write.commit()
    assert desk.session.value("find_writer_floor") > began[may_write]


def test_no_floor_beside_prepared_transactions(
    conn: Conn, connect: OpenConnection, desk: Desk
) -> None:
    writer = connect(autocommit=False)
    writer.execute("set local outbox_bridge.notify = 'off'")
    insert(writer)
    writer.execute("prepare transaction 'unfinished'")
    try:
        assert desk.session.value("find_writer_floor") is None
    finally:
        conn.execute("rollback prepared 'unfinished'")


@pytest.mark.parametrize("backlogs", [1, 3, 10])
def test_a_quiet_destination_is_claimed_in_the_next_claim_beside_backlogs(
    conn: Conn, desk: Desk, backlogs: int
) -> None:
    for number in range(backlogs):
        insert(conn, 300, destination=f"busy-{number}")
    insert(conn, destination="quiet")
    desk.look(100)
    for _ in range(backlogs + 2):
        (row,) = insert(conn, destination="quiet")
        assert row in desk.look(100)


def test_a_destination_that_appears_beside_a_backlog_is_claimed_in_the_next_claim(
    conn: Conn, desk: Desk
) -> None:
    insert(conn, 1000, destination="m")
    desk.look(100)
    for name in ("a", "n", "z", "b"):
        (row,) = insert(conn, destination=name)
        assert row in desk.look(100)


def test_backlogged_destinations_share_the_claims(conn: Conn, desk: Desk) -> None:
    names = ["a", "b", "c", "d"]
    for name in names:
        insert(conn, 400, destination=name)
    for _ in range(10):
        desk.look(100)
    claimed = dict(
        conn.execute(
            "select destination, count(*) from app_outbox where status = 'PROCESSING' group by 1"
        ).fetchall()
    )
    assert sum(claimed.values()) == 1000
    assert all(150 <= claimed[name] <= 400 for name in names), claimed


def test_thousands_of_destinations_are_claimed_in_bounded_batches(conn: Conn, desk: Desk) -> None:
    conn.execute(
        "insert into app_outbox (message_key, event_type, destination) "
        "select 'd-' || d || '-' || n, 't', 'destination-' || d "
        "from generate_series(1, 3000) as d, generate_series(1, 2) as n"
    )
    desk.claimer._search(force=True)
    sizes = []
    while batch := desk.look_again(1000):
        sizes.append(len(batch))
    assert max(sizes) <= 1000
    assert len(sizes) <= 9
    assert states(conn) == {"PROCESSING": 6000}


def _enter_floor_mode(conn: Conn, desk: Desk) -> None:
    """Look until the next look starts from a floor, with rows claimed below it."""
    insert(conn, 3)
    for _ in itertools.repeat(None, 4):
        desk.look(10)
    assert desk.claimer._targets._floor > targets.BEGINNING
    assert desk.claimer._targets.parameters(10)["after_times"] != f"{{{targets.BEGINNING}}}"


def _began(conn: Conn, other: Conn) -> int:
    return _scalar(
        conn,
        "select (extract(epoch from xact_start - timestamptz '2000-01-01 00:00:00+00') * 1000000)"
        "::bigint from pg_stat_activity where pid = %s",
        other.info.backend_pid,
    )


def _now(conn: Conn) -> int:
    return _scalar(
        conn,
        "select (extract(epoch from clock_timestamp() - timestamptz '2000-01-01 00:00:00+00') "
        "* 1000000)::bigint",
    )


def _scalar(conn: Conn, query: str, *arguments: Any) -> int:
    row = conn.execute(query, arguments or None).fetchone()
    assert row is not None
    return int(row[0])
