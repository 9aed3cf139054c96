"""Which destinations an ordered claim looks at, and how many of each lane's rows it may take."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MOST_PAIRS = 1024
"""Pairs of destination and lane that one claim looks at: each costs a look into the index."""


class Pairs:
    """Ordered destinations in turn, as many at a time as the number of lanes allows.

    Destinations that gave their fill stand behind the others, so that a backlog of one does not
    hold up another's row.
    """

    def __init__(self) -> None:
        self._full: list[str] = []
        self._first = 0

    def rounds(self, destinations: Sequence[str], lanes: int) -> Iterator[list[str]]:
        """Yield every destination once, in lists of as many as one claim may look at.

        Where the last yielded list ended, the next round begins.
        """
        full = [name for name in self._full if name in destinations]
        quiet = [name for name in destinations if name not in full]
        start = self._first % max(1, len(quiet))
        turn = quiet[start:] + quiet[:start] + full
        size = max(1, MOST_PAIRS // max(1, lanes))
        for begin in range(0, len(turn), size):
            self._first += size
            yield turn[begin : begin + size]

    def record(self, taken: dict[str, int], share: int) -> None:
        """Note how many rows each destination gave: those that gave `share` or more stand last."""
        full = [name for name, rows in taken.items() if rows >= share]
        self._full = [name for name in self._full if name not in taken] + full
        self._full = self._full[-MOST_PAIRS:]
