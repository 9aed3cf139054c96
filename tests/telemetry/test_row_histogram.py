"""The row histogram: counted together or one by one, the values come out the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.telemetry.row_histogram import RowHistogram

BOUNDS = (0.1, 1.0, 10.0)


def test_bounds_belong_to_their_bucket_as_prometheus_has_it() -> None:
    histogram = RowHistogram(BOUNDS)
    histogram.add_each("a", [0.0, 0.1, 0.1001, 10.0, 10.1])
    buckets, total = histogram.read()["a"]
    assert buckets == [("0.1", 2), ("1", 3), ("10", 4), ("+Inf", 5)]
    assert round(total, 4) == 20.3001


@given(st.lists(st.floats(0, 100), min_size=1))
def test_rows_of_one_bucket_may_be_counted_at_once(values: list[float]) -> None:
    single, together = RowHistogram(BOUNDS), RowHistogram(BOUNDS)
    single.add_each("a", values)
    for bucket in range(len(BOUNDS) + 1):
        mine = [value for value in values if together.bucket(value) == bucket]
        together.add("a", bucket, len(mine), sum(mine))
    assert together.read()["a"][0] == single.read()["a"][0]
    assert abs(together.read()["a"][1] - single.read()["a"][1]) < 1e-6


def test_each_label_has_its_own() -> None:
    histogram = RowHistogram(BOUNDS)
    assert histogram.read() == {}
    histogram.add("a", 0, 1, 0.05)
    histogram.add_each("b", [5.0])
    assert {label: total for label, (_, total) in histogram.read().items()} == {"a": 0.05, "b": 5.0}
