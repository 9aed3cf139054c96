"""What a benchmark found, and what was to be reached."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

RATIO = "x"
"""Unit of a ratio."""


class BenchError(Exception):
    """A measurement that cannot be trusted or did not come about; says which and why."""


@dataclass(frozen=True)
class Goal:
    """A bound that a figure is to keep: at least, or at most."""

    bound: float
    at_least: bool

    def kept_by(self, value: float) -> bool:
        """Whether the value keeps the bound."""
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.bound:g}"


def at_least(bound: float) -> Goal:
    return Goal(bound, at_least=True)


def at_most(bound: float) -> Goal:
    return Goal(bound, at_least=False)


@dataclass(frozen=True)
class Figure:
    """One line of the table: the median of `samples`, which are in the order of measuring."""

    name: str
    samples: Sequence[float]
    unit: str
    goal: Goal | None = None

    @property
    def value(self) -> float:
        """The median."""
        return median(self.samples)

    @property
    def kept(self) -> bool | None:
        """Whether the goal was reached; None where there is none."""
        return self.goal.kept_by(self.value) if self.goal else None

    def as_dict(self) -> dict[str, Any]:
        """Return what the JSON file keeps."""
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "samples": list(self.samples),
            "to_reach": str(self.goal) if self.goal else None,
            "reached": self.kept,
        }


@dataclass
class Findings:
    """One benchmark: its figures, and every single run behind them."""

    bench: str
    figures: list[Figure] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)

    def add(self, name: str, samples: Sequence[float], unit: str, goal: Goal | None = None) -> None:
        """Add a figure; nothing happens where nothing was measured."""
        if samples:
            self.figures.append(Figure(name, samples, unit, goal))


def ratios(ours: Sequence[float], others: Sequence[float]) -> list[float]:
    """Return the ratio of each pair: the two sides of one pair ran one right after the other."""
    return [mine / other for mine, other in zip(ours, others, strict=False)]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` (0 to 1) of the values lie, by nearest rank."""
    if not values:
        raise BenchError("no latency was measured: no record arrived after the warm-up")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
