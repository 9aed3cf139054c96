"""Acknowledgements wait for the rest of their batch, but not for long."""

from __future__ import annotations

from typing import Any

from bridge.relay.batch import Ack, Batch
from bridge.relay.gathering import Gathering


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def batch(rows: int) -> Batch:
    columns: list[Any] = [None] * 13
    columns[1] = "orders"
    return Batch("claim", [(n, *columns[1:]) for n in range(rows)])  # type: ignore[misc]  # as it comes from psycopg


def acknowledge(gathering: Gathering, one: Batch, *ids: int) -> None:
    """Let acknowledgements come, as the flight counts them."""
    one.awaited -= len(ids)
    gathering.add([Ack(number, 0, number, one) for number in ids])


def ids(acks: list[Ack]) -> list[int]:
    return [ack[0] for ack in acks]


def test_rows_of_a_batch_are_given_out_together() -> None:
    gathering = Gathering(patience=1.0, clock=Clock())
    one, other = batch(3), batch(2)
    acknowledge(gathering, one, 0, 2)
    acknowledge(gathering, other, 0, 1)
    assert ids(gathering.take(100, hurry=False)) == [0, 1]
    acknowledge(gathering, one, 1)
    assert ids(gathering.take(100, hurry=False)) == [0, 2, 1]
    assert gathering.take(100, hurry=False) == []


def test_none_waits_longer_than_the_patience_for_the_others() -> None:
    clock = Clock()
    gathering = Gathering(patience=1.0, clock=clock)
    one = batch(3)
    acknowledge(gathering, one, 0)
    clock.now = 0.9
    acknowledge(gathering, one, 1)
    assert gathering.take(100, hurry=False) == []
    clock.now = 1.0
    assert ids(gathering.take(100, hurry=False)) == [0, 1]
    acknowledge(gathering, one, 2)  # the last one waits for nobody
    assert ids(gathering.take(100, hurry=False)) == [2]


def test_in_a_hurry_nothing_waits() -> None:
    gathering = Gathering(patience=1.0, clock=Clock())
    acknowledge(gathering, batch(3), 1)
    assert ids(gathering.take(100, hurry=True)) == [1]


def test_no_more_than_asked_for_and_the_rest_next_time() -> None:
    gathering = Gathering(patience=1.0, clock=Clock())
    one, other = batch(3), batch(3)
    acknowledge(gathering, one, 0, 1, 2)
    acknowledge(gathering, other, 3, 4, 5)
    assert ids(gathering.take(2, hurry=False)) == [0, 1]
    assert ids(gathering.take(2, hurry=False)) == [2, 3]
    assert ids(gathering.take(9, hurry=False)) == [4, 5]
