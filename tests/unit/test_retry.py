"""Waits between attempts: doubling, capped, never shorter than promised, never an overflow."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.retry import Backoff

SECONDS = st.floats(0.001, 366 * 86400)
FAILURES = st.integers(1, 10**30)
DRAWS = st.floats(0, 1, exclude_max=True)


def test_the_waits_are_2_4_8_16_minutes_and_at_most_an_hour() -> None:
    backoff = Backoff(jitter=0.0)
    minutes = [backoff.delay(n) / 60 for n in range(1, 9)]
    assert minutes == [2, 4, 8, 16, 32, 60, 60, 60]


@given(base=SECONDS, cap=SECONDS, jitter=st.floats(0, 1), failures=FAILURES, draw=DRAWS)
def test_no_count_overflows_and_the_cap_holds(
    base: float, cap: float, jitter: float, failures: int, draw: float
) -> None:
    """faststream-outbox: 2.0 ** 1024 is no number, and the row never moved again."""
    wait = Backoff(base, cap, jitter).delay(failures, lambda: draw)
    assert math.isfinite(wait)
    assert 0 < wait <= cap * (1 + jitter)


@given(base=SECONDS, cap=SECONDS, jitter=st.floats(0, 1), failures=FAILURES, draw=DRAWS)
def test_jitter_only_lengthens_the_wait(
    base: float, cap: float, jitter: float, failures: int, draw: float
) -> None:
    promised = Backoff(base, cap, 0.0).delay(failures)
    assert promised <= Backoff(base, cap, jitter).delay(failures, lambda: draw)


@given(base=SECONDS, cap=SECONDS, failures=FAILURES)
def test_a_later_failure_never_waits_less(base: float, cap: float, failures: int) -> None:
    backoff = Backoff(base, cap, 0.0)
    assert backoff.delay(failures) <= backoff.delay(failures + 1)


def test_the_smallest_base_reaches_the_largest_cap() -> None:
    assert Backoff(1e-6, 366 * 86400.0, 0.0).delay(10**9) == 366 * 86400.0


def test_the_jitter_is_drawn_anew_each_time() -> None:
    backoff = Backoff()
    assert len({backoff.delay(3) for _ in range(20)}) > 1


@pytest.mark.parametrize("failures", [0, -1])
def test_failures_count_from_one(failures: int) -> None:
    with pytest.raises(ValueError, match="counts from 1"):
        Backoff().delay(failures)
