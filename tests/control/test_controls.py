"""A relay's view of the switches: which of two comes first, and what rate limits let through."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge.relay.controls import OPEN, REFRESH_INTERVAL, Controls
from bridge.switches import batch, limit, pause, quiet, resume
from tests.fixtures.postgres import on_one_server
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from tests.control.conftest import OpenControlsFunction

Connection = psycopg.Connection[tuple[Any, ...]]

WHO: dict[str, Any] = {"reason": "a test", "actor": "ann@desk"}


def test_without_a_switch_everything_is_open(controls: Controls) -> None:
    assert controls.refresh() is False
    assert not controls.any
    assert controls.switch("orders") is OPEN
    assert controls.take("orders", 1000) == 1000
    assert controls.wait_for_rows(["orders"]) is None
    assert controls.longest_sleep(3600) == 3600
    assert controls.closed_by_default() == (False, [])


def test_own_switches_come_before_those_for_all_field_by_field(
    conn: Connection, controls: Controls
) -> None:
    limit(conn, rows_per_second=100, **WHO)
    batch(conn, rows=50, **WHO)
    limit(conn, "own-limit", rows_per_second=7, **WHO)
    batch(conn, "own-batch", rows=500, **WHO)
    pause(conn, "paused", **WHO)
    assert controls.refresh()
    assert controls.any
    assert controls.switch("other") == (False, None, 100, 50)
    assert controls.switch("own-limit") == (False, None, 7, 50)
    assert controls.switch("own-batch") == (False, None, 100, 500)
    assert controls.switch("paused") == (True, "paused", 100, 50)
    assert controls.closed_by_default() == (False, ["paused"])
    assert controls.longest_sleep(3600) == 1


def test_a_pause_of_all_closes_what_is_resumed_by_itself(
    conn: Connection, controls: Controls
) -> None:
    pause(conn, "orders", **WHO)
    resume(conn, "orders", **WHO)
    pause(conn, **WHO)
    controls.refresh()
    assert controls.switch("orders") == (True, "paused", None, None)
    assert controls.closed_by_default() == (True, [])
    resume(conn, **WHO)
    controls.refresh(force=True)
    assert not controls.any


def hours(first: int, last: int) -> str:
    return f"{first % 24:02}:00-{last % 24:02}:00 UTC"


def test_own_quiet_hours_take_the_place_of_those_for_all(
    conn: Connection, controls: Controls
) -> None:
    row = conn.execute("select extract(hour from now() at time zone 'UTC')::int").fetchone()
    assert row is not None
    quiet(conn, window=hours(row[0] - 1, row[0] + 2), **WHO)
    quiet(conn, "awake", window=hours(row[0] + 4, row[0] + 5), **WHO)
    controls.refresh()
    assert controls.switch("other").why == "quiet hours"
    assert not controls.switch("awake").closed
    assert controls.closed_by_default() == (True, ["awake"])


def test_switches_are_read_again_after_a_while_or_when_asked(
    conn: Connection, controls: Controls
) -> None:
    clock = 1000.0
    controls._clock = lambda: clock
    controls.refresh()
    pause(conn, **WHO)
    clock += REFRESH_INTERVAL / 2
    assert not controls.refresh()
    assert controls.refresh(force=True)
    resume(conn, **WHO)
    assert not controls.refresh()
    clock += REFRESH_INTERVAL
    assert controls.refresh()
    assert not controls.any


def drain(views: list[Controls], destinations: list[str], seconds: float) -> dict[int, int]:
    """Take as much as each view lets through, each in a thread of its own; rows by view."""
    taken = dict.fromkeys(range(len(views)), 0)
    end = time.monotonic() + seconds
    stop = threading.Event()

    def work(number: int) -> None:
        view = views[number]
        while time.monotonic() < end:
            rows = sum(view.take(name, 1000) for name in destinations)
            taken[number] += rows
            if not rows:
                stop.wait(min(view.wait_for_rows(destinations) or 0.001, 0.02))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(views))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return taken


def clock_of(conn: Connection) -> float:
    row = conn.execute("select extract(epoch from clock_timestamp())::float8").fetchone()
    assert row is not None
    return float(row[0])


def assert_pace(
    conn: Connection, views: list[Controls], destinations: list[str], rate: int
) -> None:
    """Let the views take so many rows a second together.

    Who stalls for longer than a bucket holds loses rows for good, so a loaded machine has some more
    tries.
    """
    drain(views, destinations, 0.5)  # the buckets are full in the beginning
    paces: list[float] = []
    while not (paces and paces[-1] == pytest.approx(rate, rel=0.1, abs=4 / 3)):
        assert len(paces) < 5, paces
        started = clock_of(conn)
        taken = drain(views, destinations, 3.0)
        paces.append(sum(taken.values()) / (clock_of(conn) - started))


@on_one_server
@pytest.mark.parametrize("rate", [20, 1000, 30_000])
def test_relays_share_a_limit(
    conn: Connection, open_controls: OpenControlsFunction, rate: int
) -> None:
    limit(conn, "orders", rows_per_second=rate, **WHO)
    views = [open_controls() for _ in range(3)]
    for view in views:
        view.refresh()
    assert_pace(conn, views, ["orders"], rate)


@on_one_server
def test_destinations_share_the_limit_for_all(
    conn: Connection, open_controls: OpenControlsFunction
) -> None:
    limit(conn, rows_per_second=500, **WHO)
    limit(conn, "own", rows_per_second=100, **WHO)
    views = [open_controls() for _ in range(2)]
    for view in views:
        view.refresh()
    assert_pace(conn, views, ["a", "b", "own"], 600)


def test_what_a_claim_did_not_find_is_not_lost(conn: Connection, controls: Controls) -> None:
    limit(conn, "orders", rows_per_second=50, **WHO)
    controls.refresh()
    for _ in range(200):
        rows = controls.take("orders", 1000)
        assert rows > 0
        controls.give_back("orders", rows)
    (level,) = conn.execute("select tokens, granted from app_outbox_rate").fetchall()
    assert level == (6.0, 5)  # one request in all


def test_a_closed_destination_keeps_no_relay_from_sleeping(
    conn: Connection, controls: Controls
) -> None:
    limit(conn, "orders", rows_per_second=1, **WHO)
    controls.refresh()
    assert controls.take("orders", 10) == 1
    assert controls.wait_for_rows(["other"]) is None
    assert controls.wait_for_rows(["other", "orders"]) is not None
    pause(conn, "orders", **WHO)
    controls.refresh(force=True)
    assert controls.wait_for_rows(["other", "orders"]) is None


def test_a_changed_limit_acts_at_once(conn: Connection, controls: Controls) -> None:
    limit(conn, "orders", rows_per_second=1_000_000, **WHO)
    controls.refresh()
    assert controls.take("orders", 10) == 10
    limit(conn, "orders", rows_per_second=5, **WHO)
    controls.refresh(force=True)
    # Neither what this relay had left nor what the bucket held counts any more.
    assert drain([controls], ["orders"], 0.3)[0] <= 2 + 2
    limit(conn, "orders", rows_per_second=1_000_000, **WHO)
    controls.refresh(force=True)
    wait_until(lambda: controls.take("orders", 100_000) > 10_000, "it takes many at once")
    limit(conn, "orders", rows_per_second=None, **WHO)
    controls.refresh(force=True)
    assert controls.take("orders", 123_456_789) == 123_456_789


def test_a_locked_bucket_lets_nothing_through_and_stalls_nobody(
    conn: Connection, open_controls: OpenControlsFunction
) -> None:
    limit(conn, "orders", rows_per_second=1000, **WHO)
    controls = open_controls(lock_timeout=0.05)
    controls.refresh()
    drain([controls], ["orders"], 0.1)
    with conn.transaction(force_rollback=True):
        conn.execute("update app_outbox_rate set tokens = 0")
        while controls.take("orders", 1000):
            pass  # what it had been granted before
        assert drain([controls], ["orders"], 0.3)[0] == 0
        assert controls.take("free", 10) == 10
    wait_until(lambda: controls.take("orders", 1000), "the bucket gives again")


def test_a_clock_that_was_set_back_stops_a_bucket_for_a_second_only(
    conn: Connection, controls: Controls
) -> None:
    """As after a failover to a server whose clock is behind."""
    limit(conn, "orders", rows_per_second=1000, **WHO)
    controls.refresh()
    conn.execute("insert into app_outbox_rate values ('orders', 0, 0, now() + interval '1 hour')")
    # An hour is not what it waits.
    wait_until(lambda: controls.take("orders", 1000), "the bucket gives again")
