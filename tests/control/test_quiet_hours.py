"""Quiet hours follow the clock on the wall of their time zone, over summer time and back.

In Europe/Berlin 2026 the clock went from 02:00 to 03:00 on 29 March (01:00 UTC) and from 03:00 back
to 02:00 on 25 October (01:00 UTC). Asia/Tokyo knows no summer time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge.database.statements import load
from bridge.switches import list_switches, pause, quiet

if TYPE_CHECKING:
    from bridge.relay.controls import Controls

Connection = psycopg.Connection[tuple[Any, ...]]

WHO: dict[str, Any] = {"reason": "a test", "actor": "ann@desk"}
NIGHT = "23:00-06:00 Europe/Berlin"
SMALL_HOURS = "01:30-02:30 Europe/Berlin"
TOKYO = "23:00-06:00 Asia/Tokyo"


@pytest.mark.parametrize(
    ("window", "at", "expected"),
    [
        # Winter: Berlin is one hour ahead of UTC; the window goes over midnight.
        (NIGHT, "2026-01-15 21:59:59 UTC", False),
        (NIGHT, "2026-01-15 22:00 UTC", True),
        (NIGHT, "2026-01-15 23:30 UTC", True),
        (NIGHT, "2026-01-16 04:59:59 UTC", True),
        (NIGHT, "2026-01-16 05:00 UTC", False),
        # Summer: two hours ahead.
        (NIGHT, "2026-07-15 20:59:59 UTC", False),
        (NIGHT, "2026-07-15 21:00 UTC", True),
        (NIGHT, "2026-07-16 03:59:59 UTC", True),
        (NIGHT, "2026-07-16 04:00 UTC", False),
        # The night to 29 March begins at winter time and ends at summer time: it has 6 hours.
        (NIGHT, "2026-03-28 21:59:59 UTC", False),
        (NIGHT, "2026-03-28 22:00 UTC", True),
        (NIGHT, "2026-03-29 00:59:59 UTC", True),
        (NIGHT, "2026-03-29 01:00 UTC", True),
        (NIGHT, "2026-03-29 03:59:59 UTC", True),
        (NIGHT, "2026-03-29 04:00 UTC", False),
        # The night to 25 October begins at summer time and ends at winter time: it has 8 hours.
        (NIGHT, "2026-10-24 20:59:59 UTC", False),
        (NIGHT, "2026-10-24 21:00 UTC", True),
        (NIGHT, "2026-10-25 01:00 UTC", True),
        (NIGHT, "2026-10-25 04:59:59 UTC", True),
        (NIGHT, "2026-10-25 05:00 UTC", False),
        # A window whose end is left out in spring ends with the jump, and is there twice in autumn.
        (SMALL_HOURS, "2026-03-29 00:29:59 UTC", False),
        (SMALL_HOURS, "2026-03-29 00:30 UTC", True),
        (SMALL_HOURS, "2026-03-29 00:59:59 UTC", True),
        (SMALL_HOURS, "2026-03-29 01:00 UTC", False),
        (SMALL_HOURS, "2026-10-24 23:30 UTC", True),
        (SMALL_HOURS, "2026-10-25 00:29:59 UTC", True),
        (SMALL_HOURS, "2026-10-25 00:30 UTC", False),
        (SMALL_HOURS, "2026-10-25 01:00 UTC", True),
        (SMALL_HOURS, "2026-10-25 01:30 UTC", False),
        # Tokyo is nine hours ahead all year.
        *(
            (TOKYO, f"2026-{day} {time} UTC", expected)
            for day in ("01-15", "03-29", "07-15", "10-25")
            for time, expected in (
                ("13:59:59", False),
                ("14:00", True),
                ("20:59:59", True),
                ("21:00", False),
            )
        ),
        ("22:00-00:00 UTC", "2026-01-01 23:59:59 UTC", True),
        ("22:00-00:00 UTC", "2026-01-02 00:00 UTC", False),
        ("09:00-17:00 UTC", "2026-01-01 08:59 UTC", False),
        ("09:00-17:00 UTC", "2026-01-01 09:00 UTC", True),
        ("09:00-17:00 UTC", "2026-01-01 17:00 UTC", False),
    ],
)
def test_quiet_is_what_the_clock_on_the_wall_says(
    shared: Connection,
    window: str,
    at: str,
    expected: bool,  # noqa: FBT001 - pytest passes it by name
) -> None:
    with shared.transaction(force_rollback=True):
        quiet(shared, "push", window=window, **WHO)
        shared.execute("set time zone 'America/New_York'")  # the session's own does not matter
        (row,) = shared.execute(load("read_switches", "public"), {"at": at}).fetchall()
        assert row[5] is expected


def test_now_is_the_databases_clock(conn: Connection, controls: Controls) -> None:
    row = conn.execute("select extract(hour from now() at time zone 'UTC')::int").fetchone()
    assert row is not None

    def window(first: int, last: int) -> str:
        return f"{(row[0] + first) % 24:02}:00-{(row[0] + last) % 24:02}:00 UTC"

    quiet(conn, "now", window=window(-1, 2), **WHO)
    quiet(conn, "later", window=window(3, 5), **WHO)
    controls.refresh()
    assert controls.switch("now") == (True, "quiet hours", None, None)
    assert not controls.switch("later").closed
    assert [(one.destination, one.effective) for one in list_switches(conn)] == [
        ("later", False),
        ("now", True),
    ]


@pytest.mark.parametrize(
    "window",
    [
        "at night",
        "23:00-06:00",
        "23:00-06:00 Mars/Olympus",
        "06:00-06:00 UTC",
        "25:00-26:00 UTC",
        "",
    ],
)
def test_a_window_that_cannot_be_read_is_told_once_and_closes_nothing(
    conn: Connection, controls: Controls, window: str, capsys: Any
) -> None:
    """As it may stand in a row that is older than the checks, or after a time zone was renamed."""
    conn.execute("set session_replication_role = replica")
    conn.execute(
        "insert into app_outbox_control (destination, quiet_hours, batch_rows) values ('a', %s, 5)",
        [window],
    )
    for _ in range(3):
        controls.refresh(force=True)
    assert controls.switch("a") == (False, None, None, 5)
    assert capsys.readouterr().out.count("quiet hours cannot be read") == 1
    assert [one.effective for one in list_switches(conn)] == [True, None]
    conn.execute("set session_replication_role = origin")
    # Other switches of such a row can still be set.
    pause(conn, "a", **WHO)
    controls.refresh(force=True)
    assert controls.switch("a").why == "paused"
