"""Breakers: a destination that fails is left alone, tried again with growing waits, and let in."""

from __future__ import annotations

from bridge.relay.breakers import (
    FIRST_WAIT,
    LONGEST_WAIT,
    PROBE_ROWS,
    UNPROVEN_ROWS,
    Breakers,
    State,
)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def made() -> tuple[Breakers, Clock]:
    clock = Clock()
    return Breakers(clock), clock


def test_nothing_is_claimed_before_somebody_looked_at_the_topic() -> None:
    breakers, _ = made()
    assert breakers.is_unknown("orders")
    assert breakers.allowance("orders", 1000) == 0
    assert breakers.to_look_at() == ["orders"]
    breakers.close("orders")
    assert not breakers.is_unknown("orders")
    assert breakers.allowance("orders", 1000) == UNPROVEN_ROWS
    assert breakers.allowance("orders", 10) == 10
    assert breakers.to_look_at() == []


def test_the_first_acknowledgement_lifts_the_limit() -> None:
    breakers, _ = made()
    breakers.close("orders")
    assert not breakers.succeed("orders")
    assert breakers.allowance("orders", 1000) == 1000


def test_a_failure_shuts_it_until_its_wait_is_over_and_one_row_has_tried_it() -> None:
    breakers, clock = made()
    breakers.succeed("orders")
    assert breakers.trip("orders", "no leader")
    assert breakers.allowance("orders", 1000) == 0
    assert breakers.failing() == {"orders": "no leader"}
    assert breakers.to_look_at() == []
    clock.now += FIRST_WAIT
    assert breakers.to_look_at() == ["orders"]
    breakers.close("orders")
    assert breakers.find("orders").state is State.TRYING
    assert breakers.allowance("orders", 1000) == PROBE_ROWS
    assert breakers.succeed("orders")
    assert breakers.allowance("orders", 1000) == 1000
    assert breakers.failing() == {}


def test_waits_double_up_to_the_longest_and_begin_anew_after_a_success() -> None:
    breakers, clock = made()
    breakers.succeed("orders")
    waits = []
    for _ in range(10):
        breakers.trip("orders", "no leader")
        waits.append(breakers.find("orders").wait)
        clock.now += LONGEST_WAIT
    assert waits[:3] == [FIRST_WAIT, 2 * FIRST_WAIT, 4 * FIRST_WAIT]
    assert waits[-1] == LONGEST_WAIT
    breakers.succeed("orders")
    breakers.trip("orders", "no leader")
    assert breakers.find("orders").wait == FIRST_WAIT


def test_many_reports_of_one_failure_are_one_piece_of_news_and_one_wait() -> None:
    breakers, _ = made()
    assert breakers.trip("orders", "no leader")
    assert not any(breakers.trip("orders", "no leader") for _ in range(5))
    assert breakers.find("orders").wait == FIRST_WAIT


def test_each_destination_has_its_own() -> None:
    breakers, _ = made()
    for name in ("orders", "payments"):
        breakers.succeed(name)
    breakers.trip("orders", "no leader")
    assert breakers.allowance("payments", 1000) == 1000
