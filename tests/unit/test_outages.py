"""One line of log when the database is lost, one when it is back, for the relay as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from bridge.relay import outages
from bridge.relay.outages import CALM, DatabaseState

if TYPE_CHECKING:
    from collections.abc import Iterator


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Stage:
    """Stands for a session: the state looks at its name and at what it waits for."""

    def __init__(self, stage: str, answer_timeout: float = 0.0) -> None:
        self.stage = stage
        self.asked = 0.0
        self.answer_timeout = answer_timeout


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(outages, "time", made)
    return made


@pytest.fixture
def log(clock: Clock) -> Iterator[list[Any]]:
    with capture_logs() as lines:
        yield lines


@pytest.fixture
def state(log: list[Any]) -> DatabaseState:
    made = DatabaseState()
    made.stop()  # the test looks at the clock itself
    return made


def events(log: list[Any]) -> list[str]:
    return [line["event"].partition(",")[0] for line in log]


def test_five_stages_lose_the_database_and_two_lines_tell_it(
    state: DatabaseState, log: list[Any], clock: Clock
) -> None:
    stages: list[Any] = [Stage(name) for name in "abcde"]
    for _ in range(100):
        for stage in stages:
            state.lost(stage, "gone")
            clock.now += 0.1
    for stage in stages[1:]:
        state.opened(stage)
    assert state.is_lost
    assert events(log) == ["database lost"]
    assert (log[0]["stage"], log[0]["reason"]) == ("a", "gone")
    state.opened(stages[0])
    assert not state.is_lost
    assert events(log) == ["database lost", "database back"]
    assert log[1]["seconds"] == pytest.approx(50, abs=1)


def test_a_database_that_comes_and_goes_is_no_flood(
    state: DatabaseState, log: list[Any], clock: Clock
) -> None:
    stage: Any = Stage("claim")
    for _ in range(1000):
        state.lost(stage, "gone")
        clock.now += 0.05
        state.opened(stage)
        clock.now += 0.05
    assert len(log) <= 2 * (1 + 100 / CALM)
    clock.now += CALM
    state.lost(stage, "gone")
    assert events(log)[-1] == "database lost"


def test_a_loss_soon_after_the_last_one_is_told_when_it_lasts(
    state: DatabaseState, log: list[Any], clock: Clock
) -> None:
    stage: Any = Stage("claim")
    for _ in range(2):
        state.lost(stage, "gone")
        state.opened(stage)
    state.lost(stage, "for long")
    assert events(log) == ["database lost", "database back"]
    clock.now += CALM
    state.lost(stage, "for long")  # the next attempt to connect
    assert events(log) == ["database lost", "database back", "database lost"]
    assert log[2]["reason"] == "for long"


def test_a_session_that_slept_through_an_outage_tells_it_no_second_time(
    state: DatabaseState, log: list[Any], clock: Clock
) -> None:
    awake: Any = Stage("claim")
    asleep: Any = Stage("publish")
    state.opened(awake)
    state.opened(asleep)
    clock.now += 1
    for turn in range(1, 3):
        state.lost(awake, "failover")
        clock.now += 1
        state.opened(awake)
        clock.now += 3600
        state.lost(asleep, "the server has closed it")
        state.opened(asleep)
        assert events(log) == ["database lost", "database back"] * turn
        clock.now += 3600


def test_a_session_that_was_back_before_the_others_is_awake(
    state: DatabaseState, log: list[Any], clock: Clock
) -> None:
    first: Any = Stage("claim")
    last: Any = Stage("settle")
    for stage in (first, last):
        state.lost(stage, "failover")
    for stage in (first, last):
        clock.now += 1
        state.opened(stage)
    clock.now += 3600
    state.lost(first, "terminated")
    assert events(log) == ["database lost", "database back", "database lost"]


@pytest.mark.parametrize("who", ["it again", "another", "nobody"])
def test_a_session_that_slept_through_an_outage_may_be_the_first_to_see_the_next(
    state: DatabaseState, log: list[Any], clock: Clock, who: str
) -> None:
    awake: Any = Stage("claim")
    asleep: Any = Stage("publish")
    state.opened(awake)
    state.opened(asleep)
    clock.now += 1
    state.lost(awake, "failover")
    state.opened(awake)
    clock.now += 3600
    state.lost(asleep, "closed")
    assert len(log) == 2
    if who == "nobody":
        clock.now += CALM
        state._lost.settle()
    else:
        state.lost(asleep if who == "it again" else awake, "refused")
    assert events(log) == ["database lost", "database back", "database lost"]


def test_refused_statements_are_told_once_until_they_run(
    state: DatabaseState, log: list[Any], clock: Clock
) -> None:
    stage: Any = Stage("settle")
    for _ in range(60):
        state.refused(stage, "settle_sent", "disk full")
        # Reading still works, which is no recovery.
        state.accepted(stage, "find_unsettled")
        clock.now += 1
    assert events(log) == ["database refuses statements"]
    state.accepted(stage, "settle_sent")
    assert events(log) == ["database refuses statements", "database accepts statements again"]


def test_a_new_connection_ends_what_was_refused_on_the_old_one(
    state: DatabaseState, log: list[Any]
) -> None:
    stage: Any = Stage("settle")
    state.refused(stage, "settle_sent", "out of memory")
    state.opened(stage)
    assert events(log)[-1] == "database accepts statements again"
