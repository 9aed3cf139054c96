"""A histogram that takes the rows of a batch at once."""

from __future__ import annotations

import threading
from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class _Series:
    __slots__ = ("counts", "total")

    def __init__(self, size: int) -> None:
        self.counts = [0] * size
        self.total = 0.0


class RowHistogram:
    """Counts values by bucket and label; one writing thread, any number of readers.

    OpenTelemetry's histogram takes one value in a call, at about the price of a whole row's way
    through the relay; here the price is per batch, see docs/decisions/0019. `bounds` are upper
    bounds, inclusive, ascending.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self._series: dict[str, _Series] = {}
        self._lock = threading.Lock()

    def bucket(self, value: float) -> int:
        """Return the number of the bucket that a value falls into."""
        return bisect_left(self.bounds, value)

    def add(self, label: str, bucket: int, rows: int, total: float) -> None:
        """Count `rows` values that share a bucket and add up to `total`."""
        with self._lock:
            series = self._of(label)
            series.counts[bucket] += rows
            series.total += total

    def add_each(self, label: str, values: Iterable[float]) -> None:
        """Count values one by one."""
        bounds = self.bounds
        with self._lock:
            series = self._of(label)
            for value in values:
                series.counts[bisect_left(bounds, value)] += 1
                series.total += value

    def read(self) -> dict[str, tuple[list[tuple[str, float]], float]]:
        """Return, by label, (upper bound, values up to it) as Prometheus wants it, and the sum."""
        with self._lock:
            copied = {
                label: (list(series.counts), series.total) for label, series in self._series.items()
            }
        names = [f"{bound:g}" for bound in self.bounds] + ["+Inf"]
        return {
            label: ([(n, float(c)) for n, c in zip(names, accumulate(counts), strict=True)], total)
            for label, (counts, total) in copied.items()
        }

    def _of(self, label: str) -> _Series:
        series = self._series.get(label)
        if series is None:
            series = self._series[label] = _Series(len(self.bounds) + 1)
        return series
