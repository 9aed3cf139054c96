"""Where the next claim looks: the destinations with entries, and a cursor for each."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bridge.message import ClaimedRow

BEGINNING = -(1 << 63)
"""Cursor before every row, -infinity included."""

SLOW_LOOK = 0.010
"""Seconds after which a look that found little is taken to walk over dead index entries."""

FALLBACK_MARGIN = 60_000_000
"""Microseconds behind the newest claimed row, where open transactions cannot be seen."""

Cursor = tuple[int, int]


def microseconds(raw: bytes) -> int:
    """Decode a binary timestamptz: microseconds since 2000-01-01 UTC, signed, big-endian."""
    return int.from_bytes(raw, "big", signed=True)


class Targets:
    """The destinations a claim looks at, in turn, each from its cursor on.

    A cursor spares the walk over index entries of rows that are gone, but only from one full batch
    to the next: after a short batch the look starts from the beginning again, or else rows of
    transactions that commit late would wait. Where that walk itself is slow (a snapshot held open
    keeps dead entries), frequent looks start from a floor that no later commit can undercut, and
    the whole index is walked at least each minute.
    """

    def __init__(self) -> None:
        self._cursors: dict[str, Cursor] = {}
        self._order: list[str] = []
        self._full: list[str] = []
        self._quota = 1
        self._floor = BEGINNING
        self._next_floor: int | None = None
        self._newest = BEGINNING
        self._next_walk = 0.0
        self._walked_whole = True

    def __bool__(self) -> bool:
        return bool(self._order)

    def replace(self, destinations: Sequence[str]) -> None:
        """Set the destinations; known ones keep their cursors."""
        if self._cursors.keys() == set(destinations):
            return
        self._cursors = {name: self._cursors.get(name, (BEGINNING, 0)) for name in destinations}
        self._order = list(destinations)
        self._full = [name for name in self._full if name in self._cursors]

    @property
    def backlogged(self) -> bool:
        """Tell whether some destination filled its quota in the last claim."""
        return bool(self._full)

    def parameters(self, rows: int) -> dict[str, Any]:
        """Return the arrays for `claim_rows.sql`.

        Destinations that filled their quota last time share `rows` equally and stand behind the
        others, so that a row of a quiet destination never waits for a backlog.
        """
        self._quota = max(1, -(-rows // max(1, len(self._full))))
        self._walked_whole = time.monotonic() >= self._next_walk
        low = (BEGINNING if self._walked_whole else self._floor, 0)
        cursors = [max(self._cursors[name], low) for name in self._order]
        return {
            "destinations": self._order,
            "after_times": [cursor[0] for cursor in cursors],
            "after_ids": [cursor[1] for cursor in cursors],
            "quotas": [self._quota] * len(self._order),
            "batch_rows": rows,
        }

    def record(self, rows: Sequence[ClaimedRow]) -> None:
        """Move the cursors: behind the last row where the quota was filled, else to the start."""
        if len(self._order) == 1:
            counts = {self._order[0]: len(rows)}
        else:
            counts = Counter(row[1] for row in rows)
        full = [name for name in self._order if counts.get(name, 0) >= self._quota]
        for name in self._order:
            if name not in full:
                self._cursors[name] = (BEGINNING, 0)
        for name in full:
            last = max(
                (microseconds(row[11]), row[0])  # type: ignore[arg-type]  # raw bytes, see Session
                for row in rows
                if row[1] == name
            )
            self._cursors[name] = last
            self._newest = max(self._newest, last[0])
        if len(self._order) > 1:
            quiet = [name for name in self._order if name not in full]
            self._order = quiet + full[1:] + full[:1]
        self._full = full

    def looked(self, seconds: float, read_floor: Callable[[], int | None]) -> None:
        """Note how long a look that did not fill its batch took; set the floor where it was slow.

        A floor that was read before a look counts only after that look: everything visible below
        it has then been claimed.
        """
        if self._next_floor is not None:
            self._floor = max(self._floor, self._next_floor)
            self._next_floor = None
        if self._walked_whole and seconds < SLOW_LOOK:
            self._floor = BEGINNING
            return
        now = time.monotonic()
        if self._walked_whole:
            self._next_walk = now + min(60.0, max(1.0, 50 * seconds))
        floor = read_floor()
        if floor is None and self._newest > BEGINNING + FALLBACK_MARGIN:
            floor = self._newest - FALLBACK_MARGIN
        self._next_floor = floor
