"""Where the next look starts, in which order it goes, and how much each destination may take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.relay import targets
from bridge.relay.targets import BEGINNING, START, Targets, microseconds

Admit = Callable[[dict[str, int]], dict[str, int]]
NO_FLOOR: Any = lambda: None  # noqa: E731 - a function without a name of interest


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(targets, "time", clock)
    return clock


def row(outbox_id: int, destination: str, time: int) -> Any:
    """A claimed row as far as targets look at it."""
    columns: list[Any] = [None] * 13
    columns[0], columns[1], columns[11] = (
        outbox_id,
        destination,
        time.to_bytes(8, "big", signed=True),
    )
    return tuple(columns)


def look(
    one: Targets,
    rows: int,
    claimed: list[Any],
    *,
    stale: int = 0,
    seconds: float = 0.001,
    floor: int | None = None,
    admit: Admit | None = None,
) -> dict[str, Any]:
    """One look: what it asked for, after which its answer is recorded."""
    wanted = asked(one, rows, admit)
    one.record(claimed, len(claimed) + stale)
    one.looked(seconds, lambda: floor)
    return wanted


def asked(one: Targets, rows: int, admit: Admit | None = None) -> dict[str, Any]:
    """The parameters of the next look, with arrays as lists."""
    return {
        name: [int(n) for n in value[1:-1].split(",") if n] if isinstance(value, str) else value
        for name, value in one.parameters(rows, admit).items()
    }


def of(*names: str) -> Targets:
    one = Targets()
    one.replace(names)
    return one


@given(st.integers(BEGINNING, -BEGINNING - 1))
def test_binary_timestamps_are_signed_microseconds(value: int) -> None:
    assert microseconds(value.to_bytes(8, "big", signed=True)) == value


def test_no_destination_means_nothing_to_look_at() -> None:
    assert not Targets()
    assert of("a")


def test_a_full_batch_moves_the_cursor_behind_its_last_row(clock: Clock) -> None:
    one = of("a")
    first = look(one, 3, [row(7, "a", 50), row(9, "a", 60), row(8, "a", 60)])
    assert (first["after_times"], first["after_ids"]) == ([BEGINNING], [BEGINNING])
    assert one.backlogged
    second = asked(one, 3)
    assert (second["after_times"], second["after_ids"]) == ([60], [9])


def test_a_short_batch_takes_the_cursor_back(clock: Clock) -> None:
    one = of("a")
    look(one, 2, [row(1, "a", 50), row(2, "a", 50)])
    look(one, 2, [row(3, "a", 50)])
    assert not one.backlogged
    assert asked(one, 2)["after_times"] == [BEGINNING]


def test_a_batch_full_of_stale_entries_is_no_reason_to_move(clock: Clock) -> None:
    one = of("a", "b")
    look(one, 3, [], stale=3, seconds=9.0, floor=40)
    assert asked(one, 3)["after_times"] == [BEGINNING, BEGINNING]


def test_amid_a_backlog_the_look_goes_back_about_each_second(clock: Clock) -> None:
    one = of("a")
    batch = [row(1, "a", 50)]
    look(one, 1, batch)
    for _ in range(3):
        clock.now += 0.3
        assert look(one, 1, batch)["after_times"] == [50]
    clock.now += 0.3
    assert look(one, 1, batch)["after_times"] == [BEGINNING]
    assert look(one, 1, batch)["after_times"] == [50]


def test_a_slow_walk_is_made_less_often_but_each_minute(clock: Clock) -> None:
    one = of("a")
    batch = [row(1, "a", 50)]
    look(one, 1, batch, seconds=0.2)  # 50 times 0.2 s
    clock.now += 9.9
    assert look(one, 1, batch)["after_times"] == [50]
    clock.now += 0.2
    assert look(one, 1, batch, seconds=30.0)["after_times"] == [BEGINNING]
    clock.now += 59.0
    assert look(one, 1, batch)["after_times"] == [50]
    clock.now += 1.1
    assert look(one, 1, batch)["after_times"] == [BEGINNING]


def test_a_floor_counts_one_look_after_it_was_read(clock: Clock) -> None:
    one = of("a")
    look(one, 10, [], seconds=0.1, floor=100)
    clock.now += targets.FLOOR_INTERVAL
    assert look(one, 10, [], floor=200)["after_times"] == [BEGINNING]
    clock.now += targets.FLOOR_INTERVAL
    assert look(one, 10, [], floor=300)["after_times"] == [100]
    assert asked(one, 10)["after_times"] == [200]


def test_a_floor_never_sinks(clock: Clock) -> None:
    one = of("a")
    for floor in (100, 90, 80):
        look(one, 10, [], seconds=0.1, floor=floor)
        clock.now += targets.FLOOR_INTERVAL
    assert asked(one, 10)["after_times"] == [100]


def test_a_fast_walk_ends_the_floor(clock: Clock) -> None:
    one = of("a")
    for floor in (100, 200, 300):
        look(one, 10, [], seconds=0.1, floor=floor)
    clock.now += 60.0
    assert look(one, 10, [], seconds=0.001)["after_times"] == [BEGINNING]
    assert look(one, 10, [], seconds=0.001)["after_times"] == [BEGINNING]


def test_without_sight_of_others_the_floor_keeps_a_minute_behind_the_newest_row(
    clock: Clock,
) -> None:
    one = of("a")
    newest = 1_000_000_000
    look(one, 1, [row(1, "a", newest)])
    look(one, 1, [])
    for _ in range(3):
        look(one, 1, [], seconds=0.1)
    assert asked(one, 1)["after_times"] == [newest - targets.FALLBACK_MARGIN]


def test_backlogged_destinations_stand_last_and_share_the_batch(clock: Clock) -> None:
    one = of("a", "b", "c")
    claimed = [row(n, "a", n) for n in range(34)] + [row(n, "b", n) for n in range(34)]
    look(one, 100, [*claimed, row(99, "c", 1)])
    wanted = asked(one, 100)
    assert wanted["destinations"][0] == "c"
    assert sorted(wanted["destinations"][1:]) == ["a", "b"]
    assert wanted["quotas"][1:] == [50, 50]


def test_the_destinations_behind_a_full_batch_come_first_next_time(clock: Clock) -> None:
    one = of("a", "b", "c", "d")
    look(one, 20, [row(n, "a", n) for n in range(10)] + [row(n, "b", n) for n in range(10)])
    assert asked(one, 20)["destinations"][:2] == ["c", "d"]
    assert one.backlogged


def test_new_destinations_come_before_backlogged_ones(clock: Clock) -> None:
    one = of("a", "b")
    look(one, 10, [row(n, "a", n) for n in range(10)])
    one.replace(["0", "a", "b", "z"])
    wanted = asked(one, 10)
    assert wanted["destinations"][-1] == "a"
    assert wanted["after_times"][-1] == 9


def test_destinations_that_are_gone_are_forgotten(clock: Clock) -> None:
    one = of("a", "b")
    look(one, 10, [row(n, "a", n) for n in range(10)])
    one.replace(["b"])
    assert not one.backlogged
    one.replace(["a", "b"])
    assert set(asked(one, 10)["after_times"]) == {BEGINNING}


def without(*names: str) -> Admit:
    """Let everything through but these destinations."""
    return lambda quotas: {name: rows for name, rows in quotas.items() if name not in names}


def test_a_destination_that_is_withheld_keeps_cursor_and_place(clock: Clock) -> None:
    one = of("a", "b")
    look(one, 10, [row(n, "a", n) for n in range(10)])
    wanted = look(one, 10, [row(20, "b", 1)], admit=without("a"))
    assert wanted["destinations"] == ["b"]
    assert one.backlogged
    wanted = asked(one, 10)
    assert wanted["destinations"] == ["b", "a"]
    assert wanted["after_times"] == [BEGINNING, 9]


def test_everything_may_be_withheld(clock: Clock) -> None:
    one = of("a", "b")
    wanted = asked(one, 10, without("a", "b"))
    assert (wanted["destinations"], wanted["quotas"]) == ([], [])


def test_a_smaller_quota_that_is_used_up_means_a_backlog(clock: Clock) -> None:
    one = of("a")
    look(one, 10, [row(1, "a", 50), row(2, "a", 50)], admit=lambda _: {"a": 2})
    assert one.backlogged
    assert asked(one, 10)["after_times"] == [50]


def test_the_floor_does_not_pass_what_is_withheld(clock: Clock) -> None:
    one = of("a", "b")
    for floor in (100, 200, 300):
        look(one, 10, [], seconds=0.1, floor=floor, admit=without("b"))
        clock.now += targets.FLOOR_INTERVAL
    assert asked(one, 10)["after_times"] == [BEGINNING, BEGINNING]


def test_a_destination_that_comes_back_is_looked_at_below_the_floor(clock: Clock) -> None:
    one = of("a")
    for floor in (100, 200, 300):
        look(one, 10, [], seconds=0.1, floor=floor)
        clock.now += targets.FLOOR_INTERVAL
    one.replace(["a", "b"])
    one.start_over()
    batch = [row(n, "b", n) for n in range(10)]
    assert look(one, 10, batch, seconds=0.1)["after_times"] == [BEGINNING, BEGINNING]
    assert dict(zip(*map(asked(one, 10).get, ("destinations", "after_times")), strict=True)) == {
        "a": BEGINNING,
        "b": 9,
    }


@given(st.data())
def test_no_entry_that_is_due_stays_unclaimed(data: st.DataObject) -> None:
    """A model of the queue: entries appear at any time below or above, and all are taken."""
    names = ["a", "b", "c"]
    one = of(*names)
    waiting = {name: set[tuple[int, int]]() for name in names}
    number = 0
    for _ in range(data.draw(st.integers(1, 25))):
        for name in data.draw(st.lists(st.sampled_from(names), max_size=12)):
            number += 1
            waiting[name].add((data.draw(st.integers(0, 5)), number))
        most = data.draw(st.dictionaries(st.sampled_from(names), st.integers(0, 5)))
        _claim(one, waiting, data.draw(st.integers(1, 15)), most)
    for _ in range(number + 5):
        _claim(one, waiting, 15)
    assert not any(waiting.values())


def _claim(
    one: Targets,
    waiting: dict[str, set[tuple[int, int]]],
    rows: int,
    most: dict[str, int] | None = None,
) -> None:
    """What claim_rows.sql does with these parameters; `most` caps the quotas of some."""
    caps = most or {}

    def admit(quotas: dict[str, int]) -> dict[str, int]:
        return {name: min(quota, caps.get(name, quota)) for name, quota in quotas.items()}

    wanted = asked(one, rows, admit if caps else None)
    if not wanted["destinations"]:
        return
    claimed: list[Any] = []
    for name, after_time, after_id, quota in zip(
        wanted["destinations"],
        wanted["after_times"],
        wanted["after_ids"],
        wanted["quotas"],
        strict=True,
    ):
        due = sorted(entry for entry in waiting[name] if entry > (after_time, after_id))
        for time, outbox_id in due[: min(quota, rows - len(claimed))]:
            waiting[name].discard((time, outbox_id))
            claimed.append(row(outbox_id, name, time))
    assert len(claimed) <= rows
    one.record(claimed, len(claimed))
    one.looked(0.0, NO_FLOOR)


def test_the_start_is_before_every_entry() -> None:
    assert (BEGINNING, BEGINNING) == START
