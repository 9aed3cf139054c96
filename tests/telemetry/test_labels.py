"""Destinations as label values: a bounded number, and each keeps its own."""

from __future__ import annotations

from bridge.telemetry.labels import DestinationLabels


def test_those_beyond_the_limit_are_other_and_a_name_once_given_stays() -> None:
    labels = DestinationLabels(2)
    assert [labels.of(name) for name in ("a", "b", "c", "a", "d", "b")] == [
        *("a", "b", "other", "a", "other", "b")
    ]
    assert labels.known() == ["a", "b"]


def test_reserved_names_have_their_place_whoever_comes_first() -> None:
    labels = DestinationLabels(2, ["important"])
    assert [labels.of(name) for name in ("a", "b", "important")] == ["a", "other", "important"]


def test_with_no_values_at_all_everything_is_other() -> None:
    labels = DestinationLabels(0, ["important"])
    assert labels.of("important") == "other"
