"""Which destinations may be claimed from now, and how many rows of each."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bridge.relay.breakers import Breakers
    from bridge.relay.flight import Flight

_SHARE = 0.5
"""Share of all rows in flight that one destination may have: the rest is for the others."""

_WORTH_A_CLAIM = 1 / 8
"""Share of what a destination may have in flight below which nothing is claimed yet.

Claims cost the database by the statement: many small ones would halve the pace of a backlog.
"""


class Admission:
    """Joins what limits a destination: its breaker, and its share of what is in flight.

    `outage` is set by the watch while no broker answers: then nothing is claimed at all. `changed`
    is set when something may be claimed again that could not; a claimer that sleeps looks at it.
    `look_soon` hears that a destination is new.
    """

    def __init__(
        self, flight: Flight, breakers: Breakers, look_soon: Callable[[], None] = lambda: None
    ) -> None:
        self.look_soon = look_soon
        self._flight = flight
        self._breakers = breakers
        self._most = max(1, int(flight.max_rows * _SHARE))
        self.outage = threading.Event()
        self.changed = threading.Event()
        self.is_full = False
        """Some destination was left out in this round because of what it has in flight."""
        self.is_new = False
        """Some destination was left out in this round because nobody has looked at it yet."""

    def begin(self) -> None:
        """Begin a round of answers."""
        self.is_full = self.is_new = False

    def limits(self, destinations: Iterable[str]) -> dict[str, int]:
        """Return how many rows of each may be claimed now; those that may not are left out."""
        found: dict[str, int] = {}
        if self.outage.is_set():
            return found
        for name in destinations:
            allowed = self._breakers.allowance(name, self._most)
            if not allowed:
                self.is_new |= self._breakers.is_unknown(name)
                continue
            account = self._flight.account(name)
            free = allowed - account.rows + account.set_aside
            if free >= max(1, int(allowed * _WORTH_A_CLAIM)):
                found[name] = free
            else:
                self.is_full = True
        if self.is_new:
            self.look_soon()
        return found

    def failing(self) -> dict[str, str]:
        """Return the destinations that nothing is claimed from because they fail, and why."""
        return self._breakers.failing()
