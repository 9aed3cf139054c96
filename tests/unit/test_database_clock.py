"""The database's clock as the relay reckons it: by the quickest of its latest readings."""

from __future__ import annotations

import pytest

from bridge.relay.database_clock import DatabaseClock


def test_nothing_is_known_before_the_first_reading() -> None:
    assert DatabaseClock().micros(1.0) is None


def test_a_reading_counts_for_the_middle_of_its_round_trip() -> None:
    clock = DatabaseClock()
    clock.note(100.0, 100.2, 5_000_000_000)
    assert clock.micros(100.1) == pytest.approx(5_000_000_000)
    assert clock.micros(101.1) == pytest.approx(5_001_000_000)


def test_a_slow_reading_does_not_replace_a_quick_one_and_old_ones_are_forgotten() -> None:
    clock = DatabaseClock()
    clock.note(100.0, 100.002, 1_000_000)
    clock.note(110.0, 112.0, 12_900_000)
    assert clock.micros(100.001) == pytest.approx(1_000_000)
    for second in range(6):
        clock.note(200.0 + second, 200.1 + second, 7_000_000 + second * 1_000_000)
    assert clock.micros(200.05) == pytest.approx(7_000_000)
