"""What `top` makes of two moments."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bridge.cli.overview import Sample, headline, rates, sections
from bridge.lifecycle import Status
from bridge.monitor import (
    Backlog,
    DestinationBacklog,
    FailureGroup,
    Minute,
    RelayState,
    RelayView,
)
from bridge.switches import SwitchView

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
THIS, LAST = NOW.replace(second=0), NOW.replace(second=0) - timedelta(minutes=1)


def sample(
    at: float = 0.0, sent: dict[tuple[datetime, str], int] | None = None, **destinations: Any
) -> Sample:
    made = {}
    for name, counts in destinations.items():
        oldest = counts.pop("oldest", None)
        rows = dict.fromkeys(Status, 0) | {Status(key): n for key, n in counts.items()}
        made[name] = DestinationBacklog(rows, rows[Status.PENDING], 0, oldest)
    return Sample(Backlog(NOW + timedelta(seconds=at), made, [], []), [], sent or {}, [], 0)


def relay(name: str, state: RelayState, failing: dict[str, str]) -> RelayView:
    seen = {"started_at": NOW, "heartbeat_at": NOW, "silent_seconds": 0.5, "lease_seconds": 120}
    life: Any = {**seen, "has_session": True, "claims": 0, "failing": failing}
    return RelayView(1, name, "h", 1, "1", state, **life)


def test_rates_are_what_changed_over_a_minutes_end_and_beside_pruning() -> None:
    before = sample(0, {(LAST, "a"): 100}, a={"PENDING": 50, "SENT": 1000})
    after = sample(
        10, {(LAST, "a"): 130, (THIS, "a"): 20}, a={"PENDING": 80, "SENT": 7, "FAILED": 10}
    )
    speed = rates(after, before)
    assert speed.sent == {"a": 5.0}  # 50 in 10 s, although SENT shrank
    assert speed.came == {"a": 9.0}  # 40 more open, and 50 gone


def test_the_first_look_has_the_last_full_minute() -> None:
    speed = rates(sample(0, {(LAST, "a"): 120, (THIS, "a"): 7}, a={}), None)
    assert (speed.sent, speed.came) == ({"a": 2.0}, {})
    assert "2 rows/s sent" in headline(sample(0, {(LAST, "a"): 120}, a={}), speed)[1]


def test_what_fails_and_what_waits_stands_first_with_its_reason() -> None:
    now = sample(0, a={"PENDING": 1, "oldest": 5.0}, b={"oldest": 900.0, "PENDING": 1}, c={})
    backlog = Backlog(
        NOW,
        now.backlog.destinations,
        [],
        [
            relay("one", RelayState.LIVING, {"c": "no leader"}),
            relay("dead", RelayState.DEAD, {"a": "of yesterday"}),
        ],
        [SwitchView("b", "rows_per_second", "200", True, "me", NOW, "why")],  # noqa: FBT003 - a field
    )
    table = sections(Sample(backlog, [], {}, [], 0), rates(now, None))[0]
    assert [row[0] for row in table.rows] == ["c", "b", "a"]
    assert [row[-1] for row in table.rows] == ["breaker open: no leader", "rows a second 200", None]
    assert table.styles == ["bold red", "yellow", ""]


@pytest.mark.parametrize(("room", "shown"), [(4, [2, 2]), (30, [27, 3]), (100, [40, 3])])
def test_tables_share_the_screen(room: int, shown: list[int]) -> None:
    many: Any = {f"d{n}": {"PENDING": 1} for n in range(40)}
    now = sample(0, None, **many)
    failures = [FailureGroup("d1", f"E{n}", 1, NOW, NOW) for n in range(3)]
    backlog = Backlog(NOW, now.backlog.destinations, failures, [])
    made = sections(Sample(backlog, [], {}, [], 0), rates(now, None), room)
    assert [len(one.rows) for one in made] == shown
    assert [one.more for one in made] == [40 - shown[0], 3 - shown[1]]


def test_the_graph_scales_to_the_busiest_minute() -> None:
    now = sample(0, a={})
    minutes = [Minute(NOW, n, 0, 0) for n in (0, 1, 50, 100)]
    line = headline(Sample(now.backlog, minutes, {}, [], 0), rates(now, None))[2]
    assert line.endswith("▁▂▅█ 100 at most")
