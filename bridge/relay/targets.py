"""Where the next claim looks: the destinations with entries, and a cursor for each."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from bridge.database.arrays import array

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bridge.message import ClaimedRow

BEGINNING = -(1 << 63)
"""Cursor before every row, -infinity included."""

SLOW_LOOK = 0.010
"""Seconds after which a look that found little is taken to walk over dead index entries."""

_QUIET_ROWS = 10
"""Rows that a destination may always take in a claim before it counts as backlogged."""

FLOOR_INTERVAL = 0.25
"""Seconds between two readings of the floor: each costs as much as a look."""

FALLBACK_MARGIN = 60_000_000
"""Microseconds behind the newest claimed row, where open transactions cannot be seen."""

_SIGN_BIT = 0x80

Cursor = tuple[int, int]

START: Cursor = (BEGINNING, BEGINNING)
"""Where a look starts that is to see everything."""


def microseconds(raw: bytes) -> int:
    """Decode a binary timestamptz: microseconds since 2000-01-01 UTC, signed, big-endian."""
    return int.from_bytes(raw, "big", signed=True)


def _last(rows: Sequence[ClaimedRow]) -> Cursor:
    """Return the highest (time, id). Times are raw bytes here, see Session."""
    times: list[Any] = [row[11] for row in rows]
    latest = max(times)
    if latest[0] < _SIGN_BIT:  # all since 2000: bytes compare as the numbers do, and much faster
        return microseconds(latest), max(row[0] for row in rows if row[11] == latest)
    return max((microseconds(moment), row[0]) for moment, row in zip(times, rows, strict=True))


class Targets:
    """The destinations a claim looks at, in turn, each from its cursor on.

    A cursor spares the walk over index entries of rows that are gone, but only from one full batch
    to the next: after a short batch the look starts from the beginning again, and amid a backlog
    about each second, or else rows of transactions that commit late, and rows taken back from a
    dead relay, would wait. Where that walk itself is slow (a snapshot held open keeps dead
    entries), frequent looks start from a floor that no later commit can undercut, and the whole
    index is walked at least each minute.
    """

    def __init__(self) -> None:
        self._cursors: dict[str, Cursor] = {}
        self._order: list[str] = []
        self._full: list[str] = []
        self._rows = 1
        self._quotas: dict[str, int] = {}
        self._looked_at: list[str] = []
        self._withheld: list[str] = []
        self._floor = BEGINNING
        self._next_floor: int | None = None
        self._newest = BEGINNING
        self._next_walk = 0.0
        self._next_reading = 0.0
        self._walked_whole = True
        self._swept = True
        self._exhausted = True

    def __bool__(self) -> bool:
        return bool(self._order)

    @property
    def names(self) -> list[str]:
        """The destinations, in the order in which the next claim looks at them."""
        return self._order

    def replace(self, destinations: Sequence[str]) -> None:
        """Set the destinations; known ones keep their cursors, backlogged ones stand last."""
        if self._cursors.keys() == set(destinations):
            return
        self._cursors = {name: self._cursors.get(name, START) for name in destinations}
        self._full = [name for name in self._full if name in self._cursors]
        self._order = [name for name in destinations if name not in self._full] + self._full

    @property
    def backlogged(self) -> bool:
        """Tell whether some destination has more than the last claims took."""
        return bool(self._full)

    def walk_now(self) -> None:
        """Start the next look from the beginning, floor or not."""
        self._next_walk = 0.0

    def start_over(self) -> None:
        """Forget the floor: destinations come back whose rows may all lie below it."""
        self._floor, self._next_floor = BEGINNING, None
        self._next_walk = 0.0

    def parameters(
        self,
        rows: int,
        admit: Callable[[dict[str, int]], dict[str, int]] | None = None,
    ) -> dict[str, Any]:
        """Return the arrays for `claim_rows.sql`.

        Backlogged destinations share `rows` equally and stand behind the others, so that a row of a
        quiet destination never waits for a backlog. Of the others each may take a small share, so
        that one whose backlog is not known yet leaves room for those behind it.

        `admit` is told these quotas and returns smaller ones. A destination that it leaves out is
        not looked at this time, and keeps its cursor and its place.
        """
        self._rows = rows
        # What gave nothing last time will hardly do now: its share is the others'.
        away = set(self._withheld)
        busy = -(-rows // max(1, sum(name not in away for name in self._full)))
        quiet = max(_QUIET_ROWS, -(-rows // max(1, sum(name not in away for name in self._order))))
        self._quotas = dict.fromkeys(self._order, quiet) | dict.fromkeys(self._full, busy)
        self._looked_at, self._withheld = self._order, []
        if admit is not None:
            self._quotas = admit(self._quotas)
            self._looked_at = [name for name in self._order if self._quotas.get(name)]
            self._withheld = [name for name in self._order if not self._quotas.get(name)]
        self._walked_whole = time.monotonic() >= self._next_walk
        low = START if self._walked_whole else (self._floor, BEGINNING)
        if self._walked_whole:
            cursors = [low] * len(self._looked_at)
        else:
            cursors = [max(self._cursors[name], low) for name in self._looked_at]
        self._swept = all(cursor == low for cursor in cursors)
        return {
            "destinations": self._looked_at,
            # Texts: psycopg would choose the type of a list by its values, a plan for each type.
            "after_times": array(cursor[0] for cursor in cursors),
            "after_ids": array(cursor[1] for cursor in cursors),
            "quotas": array(self._quotas[name] for name in self._looked_at),
            "batch_rows": rows,
        }

    def record(self, rows: Sequence[ClaimedRow], taken: int) -> None:
        """Move the cursors: behind the last row where more may follow, else back to the start.

        `taken` counts the entries, stale ones included. Where they filled the batch, the claim
        ended at the last destination that has rows, and did not reach those behind it.
        """
        order = self._looked_at
        counts = {order[0]: len(rows)} if len(order) == 1 else Counter(row[1] for row in rows)
        served = [name for name in order if counts.get(name)]
        reached, cut_short = order, ""
        if taken >= self._rows and served:
            cut_short = served[-1]
            reached = order[: order.index(cut_short) + 1]
        full = [n for n in served if counts[n] >= self._quotas[n] or n == cut_short]
        for name in reached:
            self._cursors[name] = START
        for name in full:
            alone = counts[name] == len(rows)
            last = _last(rows if alone else [row for row in rows if row[1] == name])
            self._cursors[name] = last
            self._newest = max(self._newest, last[0])
        if len(self._order) > 1:
            missed = order[len(reached) :] + self._withheld
            waiting = [name for name in missed if name in self._full]
            busy = {*waiting, *full}
            quiet = [name for name in missed + reached if name not in busy]
            full = waiting + full[1:] + full[:1]
            self._order = quiet + full
        self._full = full
        self._exhausted = not full and taken < self._rows and not self._withheld

    def looked(self, seconds: float, read_floor: Callable[[], int | None]) -> None:
        """Note how long the look took that was recorded last, and set the floor where it was slow.

        A floor that was read before a look counts only after a look that began below it and left
        nothing: everything visible below it has then been claimed.
        """
        now = time.monotonic()
        if self._walked_whole:
            if self._exhausted and seconds < SLOW_LOOK:
                self._next_walk = 0.0
                self._floor, self._next_floor = BEGINNING, None
                return
            self._next_walk = now + min(60.0, max(1.0, 50 * seconds))
        if not (self._exhausted and self._swept):
            return
        if self._floor == BEGINNING and self._next_floor is None and not self._walked_whole:
            self._next_walk = 0.0  # the first look after a backlog: was it slow? the next one tells
            return
        if self._next_floor is not None:
            self._floor = max(self._floor, self._next_floor)
            self._next_floor = None
        if now < self._next_reading:
            return
        self._next_reading = now + FLOOR_INTERVAL
        floor = read_floor()
        if floor is None and self._newest > BEGINNING + FALLBACK_MARGIN:
            floor = self._newest - FALLBACK_MARGIN
        self._next_floor = floor
