"""Admission: what limits a destination is its breaker and its share of what is in flight."""

from __future__ import annotations

from collections import Counter
from typing import Any

from bridge.relay.admission import Admission
from bridge.relay.batch import Batch
from bridge.relay.breakers import UNPROVEN_ROWS, Breakers
from bridge.relay.flight import Flight


def batch(name: str, destination: str, rows: int) -> Batch:
    columns: list[Any] = [None, destination, *[None] * 11]
    return Batch(name, [(n, *columns[1:]) for n in range(rows)])  # type: ignore[misc]  # as it comes from psycopg


def made(rows: int = 8000, *proven: str) -> tuple[Admission, Flight, Breakers]:
    flight, breakers = Flight(rows, 1 << 20), Breakers()
    for name in proven:
        breakers.succeed(name)
    return Admission(flight, breakers), flight, breakers


def test_one_destination_may_have_half_of_what_is_in_flight() -> None:
    admission, flight, _ = made(8000, "a", "b")
    assert admission.limits(["a", "b"]) == {"a": 4000, "b": 4000}
    flight.enter(batch("1", "a", 3500))
    assert admission.limits(["a", "b"]) == {"a": 500, "b": 4000}
    flight.enter(batch("2", "a", 1))
    admission.begin()
    assert admission.limits(["a", "b"]) == {"b": 4000}
    assert admission.is_full


def test_a_single_row_in_flight_is_enough_to_try_a_destination_out() -> None:
    admission, flight, breakers = made(8000, "a")
    breakers.trip("a", "no leader")
    breakers.find("a")
    breakers._breakers["a"].next_try = 0.0
    breakers.close("a")
    assert admission.limits(["a"]) == {"a": 1}
    flight.enter(batch("1", "a", 1))
    assert admission.limits(["a"]) == {}


def test_a_destination_without_any_acknowledgement_has_few_in_flight() -> None:
    admission, _, breakers = made()
    breakers.allowance("new", 1)
    breakers.close("new")
    assert admission.limits(["new"]) == {"new": UNPROVEN_ROWS}


def test_new_destinations_are_left_out_until_somebody_has_looked_at_them() -> None:
    looks: list[str] = []
    flight, breakers = Flight(100, 100), Breakers()
    admission = Admission(flight, breakers, lambda: looks.append("soon"))
    admission.begin()
    assert admission.limits(["new"]) == {}
    assert admission.is_new
    assert not admission.is_full
    assert looks == ["soon"]


def test_a_failing_destination_is_left_out_and_told() -> None:
    admission, _, breakers = made(100, "good", "bad")
    breakers.trip("bad", "no leader")
    assert admission.limits(["good", "bad"]) == {"good": 50}
    assert admission.failing() == {"bad": "no leader"}


def test_nothing_is_admitted_while_no_broker_answers() -> None:
    admission, _, _ = made(100, "a")
    admission.outage.set()
    assert admission.limits(["a"]) == {}


def test_rows_set_aside_leave_their_room_to_others_of_the_destination() -> None:
    admission, flight, _ = made(100, "a")
    flight.enter(batch("1", "a", 50))
    assert admission.limits(["a"]) == {}
    flight.put_aside("a")
    assert admission.limits(["a"]) == {"a": 50}
    assert Counter(dict(flight.accounts()).keys()) == Counter(["a"])
