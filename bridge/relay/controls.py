"""The run-time switches as a relay sees them: what is closed, and how many rows may be claimed."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import structlog

from bridge.database.session import BUSY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bridge.database.session import Session

ALL = "*"
"""Stands for all destinations."""

REFRESH_INTERVAL = 0.5
"""Seconds between two readings of the switches."""

PORTION_SECONDS = 0.1
"""A relay takes this much of a rate limit at once."""

BURST_SECONDS = 0.2
"""What a bucket holds at most, beside one row: a relay that stalls for less loses nothing."""

LONGEST_SLEEP = 1.0
"""Seconds that a relay sleeps at most while a switch is set: nobody tells it that a window ends."""

_SHORTEST_WAIT = 0.005
_LONGEST_WAIT = 0.25
"""Seconds between two requests to a bucket that was empty."""


class Switch(NamedTuple):
    """What is in force for one destination; None: no limit."""

    closed: bool
    why: str | None
    rows_per_second: int | None
    batch_rows: int | None


OPEN = Switch(closed=False, why=None, rows_per_second=None, batch_rows=None)


class _Row(NamedTuple):
    """A row of `read_switches.sql`."""

    destination: str
    paused: bool
    rows_per_second: int | None
    batch_rows: int | None
    quiet_hours: str | None
    quiet: bool | None


_NO_ROW = _Row(
    "", paused=False, rows_per_second=None, batch_rows=None, quiet_hours=None, quiet=False
)


@dataclass(slots=True)
class _Bucket:
    """This relay's end of a shared bucket: rows granted and not used yet, and when to ask again."""

    rate: int
    stash: int = 0
    ask_at: float = 0.0

    @property
    def portion(self) -> int:
        return max(1, math.ceil(self.rate * PORTION_SECONDS))


class Controls:
    """Reads the switches now and then, and takes portions of the rate limits.

    A destination's own row comes before that for all (`*`), field by field; a pause of either
    closes. The limit for all is one bucket, shared by the destinations that have none of their own.
    Used by the claimer's thread alone, with its session. While no switch is set, `any` is False and
    there is nothing else to ask.
    """

    def __init__(self, session: Session, clock: Callable[[], float] = time.monotonic) -> None:
        self._session = session
        self._clock = clock
        self._rows: dict[str, _Row] = {}
        self._switches: dict[str, Switch] = {}
        self._buckets: dict[str, _Bucket] = {}
        self._unreadable: set[tuple[str, str | None]] = set()
        self._next_reading = 0.0
        self._log = structlog.get_logger("bridge.relay.controls")
        self.any = False

    def refresh(self, *, force: bool = False) -> bool:
        """Read the switches if it is time, or at once; True when anything has changed.

        Raises ConnectionLost and psycopg's errors.
        """
        now = self._clock()
        if now < self._next_reading and not force:
            return False
        found = [_Row(*row) for row in self._session.rows("read_switches", {"at": None})]
        self._next_reading = now + REFRESH_INTERVAL
        rows = {row.destination: row for row in found}
        if rows == self._rows:
            return False
        self._tell_unreadable(found)
        before, self._rows = self._rows, rows
        self._switches = {}
        self.any = bool(rows)
        # What was granted under another limit is worth another time: it is forgotten.
        limits = {row.destination: row.rows_per_second for row in found if row.rows_per_second}
        self._buckets = {
            name: bucket
            if (bucket := self._buckets.get(name)) is not None and bucket.rate == rate
            else _Bucket(rate)
            for name, rate in limits.items()
        }
        self._tell_changes(before)
        return True

    def switch(self, destination: str) -> Switch:
        """Return what is in force for a destination."""
        if not self.any:
            return OPEN
        known = self._switches.get(destination)
        if known is None:
            known = self._switches[destination] = self._merge(destination)
        return known

    def closed_by_default(self) -> tuple[bool, list[str]]:
        """Tell whether destinations without a row are closed, and for which names it differs."""
        default = self.switch(ALL).closed
        return default, [name for name in self._rows if self.switch(name).closed != default]

    def take(self, destination: str, wanted: int) -> int:
        """Return how many of `wanted` rows may be claimed now; they count as used.

        Without a limit that is `wanted`. At most a portion at a time; 0 while the bucket is empty.
        """
        bucket = self._bucket(destination)
        if bucket is None or wanted <= 0:
            return wanted
        if bucket.stash < min(wanted, bucket.portion):
            self._ask(destination, bucket)
        taken = min(wanted, bucket.stash)
        bucket.stash -= taken
        return taken

    def give_back(self, destination: str, rows: int) -> None:
        """Keep rows that `take` allowed and the claim did not find for the next time."""
        bucket = self._bucket(destination)
        if bucket is not None and rows > 0:
            bucket.stash += rows

    def wait_for_rows(self, destinations: Iterable[str]) -> float | None:
        """Return the seconds until one that has used up its portion may ask again; None: none has.

        A relay must not go to sleep meanwhile: nobody would wake it.
        """
        if not self._buckets:
            return None
        used_up = [
            bucket.ask_at
            for name in destinations
            if (bucket := self._bucket(name)) is not None
            and not bucket.stash
            and not self.switch(name).closed
        ]
        return max(0.0, min(used_up) - self._clock()) if used_up else None

    def longest_sleep(self, seconds: float) -> float:
        """Return how long a relay may sleep that would sleep for `seconds`."""
        return min(seconds, LONGEST_SLEEP) if self.any else seconds

    def _merge(self, destination: str) -> Switch:
        common = self._rows.get(ALL, _NO_ROW)
        own = self._rows.get(destination, _NO_ROW)
        paused = own.paused or common.paused
        quiet = bool(common.quiet if own.quiet_hours is None else own.quiet)
        rate, batch = own.rows_per_second, own.batch_rows
        return Switch(
            closed=paused or quiet,
            why="paused" if paused else "quiet hours" if quiet else None,
            rows_per_second=common.rows_per_second if rate is None else rate,
            batch_rows=common.batch_rows if batch is None else batch,
        )

    def _bucket(self, destination: str) -> _Bucket | None:
        if not self._buckets:
            return None
        return self._buckets.get(destination) or self._buckets.get(ALL)

    def _ask(self, destination: str, bucket: _Bucket) -> None:
        now = self._clock()
        if now < bucket.ask_at:
            return
        wanted = bucket.portion - bucket.stash
        try:
            granted, left = self._session.rows(
                "take_tokens",
                {
                    "destination": destination if destination in self._buckets else ALL,
                    "wanted": wanted,
                    "rate": float(bucket.rate),
                    "burst": 1 + bucket.rate * BURST_SECONDS,
                },
            )[0]
        except BUSY:
            # Somebody has the bucket locked: no rows without its word.
            granted, left = 0, 0.0
        bucket.stash += granted
        if granted < wanted:
            wait = (bucket.portion - left) / bucket.rate
            bucket.ask_at = now + min(max(wait, _SHORTEST_WAIT), _LONGEST_WAIT)

    def _tell_unreadable(self, rows: list[_Row]) -> None:
        unreadable = {(row.destination, row.quiet_hours) for row in rows if row.quiet is None}
        for destination, window in sorted(unreadable - self._unreadable):
            self._log.warning(
                "quiet hours cannot be read and do not apply",
                destination=destination,
                quiet_hours=window,
            )
        self._unreadable = unreadable

    def _tell_changes(self, before: dict[str, _Row]) -> None:
        for name in sorted(before.keys() | self._rows.keys()):
            if before.get(name) != self._rows.get(name):
                row = self._rows.get(name, _NO_ROW)
                self._log.info(
                    "switches changed",
                    destination=name,
                    paused=row.paused,
                    rows_per_second=row.rows_per_second,
                    batch_rows=row.batch_rows,
                    quiet_hours=row.quiet_hours,
                    quiet=row.quiet,
                )
