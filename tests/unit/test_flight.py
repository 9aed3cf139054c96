"""The budget of what is claimed and not settled."""

from __future__ import annotations

import threading
import time
from typing import Any

from bridge.relay.batch import Batch
from bridge.relay.flight import Flight


def batch(name: str, rows: int, *, size: int = 0, lane: int | None = None) -> Batch:
    columns: list[Any] = [None] * 13
    columns[1], columns[8], columns[12] = "orders", b"x" * size, lane
    return Batch(name, [(n, *columns[1:]) for n in range(rows)])  # type: ignore[misc]  # as it comes from psycopg


def pairs(one: Batch, rows: int) -> list[tuple[int, Batch]]:
    return [(number, one) for number in range(rows)]


def test_room_is_what_the_rows_in_flight_leave() -> None:
    flight = Flight(10, 1000)
    one = batch("one", 6)
    flight.enter(one)
    assert flight.room() == 4
    assert flight.wait_for_room(4, 0)
    assert not flight.wait_for_room(5, 0)
    flight.leave(pairs(one, 2))
    assert flight.room() == 6
    flight.leave(pairs(one, 4))
    assert (flight.room(), flight.payload_bytes, flight.claims()) == (10, 0, frozenset())


def test_no_room_while_the_payloads_held_use_the_budget_up() -> None:
    flight = Flight(1000, 1000)
    large = batch("large", 4, size=300)
    flight.enter(large)
    assert flight.room() == 0
    flight.leave(pairs(large, 4))
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
    flight.leave(pairs(one, 10))
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
    flight.leave(pairs(first, 1))
    flight.leave(pairs(other, 1))
    assert flight.lanes_in_flight() == {3}
    flight.leave(pairs(second, 1))
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
    flight.leave(pairs(first, 2))
    assert flight.held_lanes == {7}
    flight.leave(pairs(second, 1))
    assert flight.held_lanes == frozenset()


def test_budgets_leave_out_what_is_set_aside() -> None:
    flight = Flight(10, 1000)
    one = batch("one", 8)
    flight.enter(one)
    flight.report(pairs(one, 2))
    assert (flight.room(), flight.account("orders").awaited) == (2, 6)
    flight.put_aside("orders")
    assert flight.room() == 8
    flight.leave(pairs(one, 3))
    assert (flight.room(), flight.account("orders").set_aside) == (10, 5)
    flight.leave(pairs(one, 5))
    assert (flight.room(), flight.accounts()) == (10, [])


def test_what_is_set_aside_is_bounded() -> None:
    flight = Flight(10, 1000)
    for number in range(4):
        flight.enter(batch(str(number), 8))
    flight.put_aside("orders")
    assert flight.account("orders").set_aside == 10


def test_rows_of_several_destinations_are_counted_each_for_its_own() -> None:
    flight = Flight(10, 1000)
    row = [None] * 13
    mixed = Batch("mixed", [(n, "a" if n < 2 else "b", *row[2:]) for n in range(5)])  # type: ignore[misc]  # as it comes from psycopg
    flight.enter(mixed)
    assert {name: one.rows for name, one in flight.accounts()} == {"a": 2, "b": 3}
    assert mixed.where(1) == "a"
    flight.report([(0, mixed), (4, mixed)])
    flight.leave([(0, mixed), (4, mixed)])
    assert {name: (one.rows, one.awaited) for name, one in flight.accounts()} == {
        "a": (1, 1),
        "b": (2, 2),
    }
    assert flight.leave([(1, mixed), (2, mixed), (3, mixed)]) == [mixed]
