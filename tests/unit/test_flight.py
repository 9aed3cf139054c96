"""The budget of what is claimed and not settled."""

from __future__ import annotations

import threading
import time
from typing import Any

from bridge.relay.batch import Batch
from bridge.relay.flight import Flight


def batch(name: str, rows: int, *, size: int = 0, lane: int | None = None) -> Batch:
    columns: list[Any] = [None] * 13
    columns[8], columns[12] = b"x" * size, lane
    return Batch(name, [tuple(columns)] * rows)  # type: ignore[list-item]  # as it comes from psycopg


def test_room_is_what_the_rows_in_flight_leave() -> None:
    flight = Flight(10, 1000)
    one = batch("one", 6)
    flight.enter(one)
    assert flight.room() == 4
    assert flight.wait_for_room(4, 0)
    assert not flight.wait_for_room(5, 0)
    flight.leave(2, [])
    assert flight.room() == 6
    flight.leave(4, [one])
    assert (flight.room(), flight.payload_bytes, flight.claims()) == (10, 0, frozenset())


def test_no_room_while_the_payloads_held_use_the_budget_up() -> None:
    flight = Flight(1000, 1000)
    large = batch("large", 4, size=300)
    flight.enter(large)
    assert flight.room() == 0
    flight.leave(4, [large])
    assert flight.room() == 1000


def test_a_large_payload_waits_for_bytes_and_one_beyond_the_budget_goes_alone() -> None:
    flight = Flight(10, 1000)
    assert flight.take_bytes(400, 0)
    assert not flight.take_bytes(5000, 0)
    flight.give_bytes(400)
    assert flight.take_bytes(5000, 0)
    assert not flight.take_bytes(1, 0)
    flight.give_bytes(5000)
    assert flight.take_bytes(1, 0)


def test_waiters_are_woken_when_room_comes() -> None:
    flight = Flight(10, 1000)
    one = batch("one", 10)
    flight.enter(one)
    found: list[bool] = []
    waiter = threading.Thread(target=lambda: found.append(flight.wait_for_room(10, 60)))
    waiter.start()
    flight.leave(10, [one])
    waiter.join(60)
    assert found == [True]


def test_waiting_ends_at_its_deadline() -> None:
    flight = Flight(10, 1000)
    assert not flight.wait_for_work(0)
    assert flight.wait_until_empty(time.monotonic())
    flight.enter(batch("one", 1))
    assert flight.wait_for_work(0)
    assert not flight.wait_until_empty(time.monotonic())


def test_lanes_are_in_flight_until_their_last_batch_is_finished() -> None:
    flight = Flight(100, 1000)
    first, second, other = batch("1", 1, lane=3), batch("2", 1, lane=3), batch("3", 1, lane=5)
    for one in (first, second, other):
        flight.enter(one)
    assert flight.lanes_in_flight() == {3, 5}
    flight.leave(1, [first])
    flight.leave(1, [other])
    assert flight.lanes_in_flight() == {3}
    flight.leave(1, [second])
    assert flight.lanes_in_flight() == frozenset()


def test_batches_go_to_the_publisher_in_the_order_of_their_claims() -> None:
    flight = Flight(100, 1000)
    batches = [batch(str(n), 1) for n in range(5)]
    for one in batches:
        flight.enter(one)
    assert [flight.to_publish.get_nowait() for _ in batches] == batches
    assert flight.batches() == batches


def test_held_lanes_are_let_go_when_none_of_their_rows_is_in_flight() -> None:
    flight = Flight(100, 100)
    first, second = batch("a", 2, lane=7), batch("b", 1, lane=7)
    flight.enter(first)
    flight.enter(second)
    flight.hold_lanes(first.lanes)
    assert flight.held_lanes == {7}
    flight.leave(2, [first])
    assert flight.held_lanes == {7}
    flight.leave(1, [second])
    assert flight.held_lanes == frozenset()
