"""Circuit breakers: which destinations may be claimed from, and why not (pure but for a lock)."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

UNPROVEN_ROWS = 200
"""Rows in flight that a destination may have before its first acknowledgement."""

PROBE_ROWS = 1
"""Rows in flight that try a destination out after a failure."""

FIRST_WAIT = 0.5
LONGEST_WAIT = 30.0
"""Seconds between two tries of a destination that fails: doubled from the first to the longest."""


class State(StrEnum):
    """Where a breaker stands."""

    UNKNOWN = "unknown"
    """Nobody has looked at the topic yet: nothing is claimed before."""
    CLOSED = "closed"
    """Records flow."""
    OPEN = "open"
    """It fails: nothing is claimed until its next try."""
    TRYING = "trying"
    """The topic looks well again: one row tries it."""


@dataclass(slots=True)
class Breaker:
    """One destination's breaker. Times are seconds of the monotonic clock."""

    state: State = State.UNKNOWN
    proven: bool = False
    reason: str = ""
    since: float = 0.0
    wait: float = FIRST_WAIT
    next_try: float = 0.0


class Breakers:
    """The breakers of one relay, made on first use. Thread-safe.

    A destination that was never asked for is UNKNOWN; the watch looks at its topic and closes the
    breaker, or opens it. A failure of class destination opens it (`trip`); when its wait is over
    the watch looks again, and lets one row try (`try_out`); an acknowledgement closes it
    (`succeed`).
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._breakers: dict[str, Breaker] = {}
        self._lock = threading.Lock()

    def allowance(self, destination: str, most: int) -> int:
        """Return how many rows the destination may have in flight, at most `most`."""
        breaker = self._breakers.get(destination)
        if breaker is None:
            with self._lock:
                breaker = self._breakers.setdefault(destination, Breaker(since=self._clock()))
        if breaker.state is State.CLOSED:
            return most if breaker.proven else min(most, UNPROVEN_ROWS)
        return PROBE_ROWS if breaker.state is State.TRYING else 0

    def is_unknown(self, destination: str) -> bool:
        """Tell whether nobody has looked at the destination's topic yet."""
        breaker = self._breakers.get(destination)
        return breaker is None or breaker.state is State.UNKNOWN

    def to_look_at(self) -> list[str]:
        """Return the destinations whose topic is to be looked at now."""
        now = self._clock()
        with self._lock:
            return [
                name
                for name, breaker in self._breakers.items()
                if breaker.state is State.UNKNOWN
                or (breaker.state is State.OPEN and breaker.next_try <= now)
            ]

    def close(self, destination: str) -> None:
        """Let records flow: the topic is there. Only after a failure one row must try it first."""
        with self._lock:
            breaker = self._breakers.setdefault(destination, Breaker())
            if breaker.state is State.UNKNOWN:
                breaker.state, breaker.since = State.CLOSED, self._clock()
            elif breaker.state is State.OPEN:
                breaker.state = State.TRYING

    def trip(self, destination: str, reason: str) -> bool:
        """Open the breaker, or keep it open for twice the time; True when it was not open."""
        with self._lock:
            now = self._clock()
            breaker = self._breakers.setdefault(destination, Breaker())
            if breaker.state is State.OPEN and breaker.next_try > now:
                return False  # reports of the same failure: one wait for all of them
            news = breaker.state in {State.UNKNOWN, State.CLOSED} or breaker.reason != reason
            if breaker.state in {State.UNKNOWN, State.CLOSED}:
                breaker.wait, breaker.since = FIRST_WAIT, now
            else:
                breaker.wait = min(2 * breaker.wait, LONGEST_WAIT)
            breaker.state, breaker.proven, breaker.reason = State.OPEN, False, reason
            breaker.next_try = now + breaker.wait
            return news

    def succeed(self, destination: str) -> bool:
        """Note an acknowledgement; True when the breaker closes by it."""
        breaker = self._breakers.get(destination)
        if breaker is not None and breaker.proven and breaker.state is State.CLOSED:
            return False
        with self._lock:
            breaker = self._breakers.setdefault(destination, Breaker())
            was_bad = breaker.state in {State.OPEN, State.TRYING}
            if breaker.state is not State.CLOSED:
                breaker.since = self._clock()
            breaker.state, breaker.proven, breaker.reason = State.CLOSED, True, ""
            breaker.wait = FIRST_WAIT
            return was_bad

    def find(self, destination: str) -> Breaker:
        """Return the breaker of a destination; a copy of no use for changing it."""
        with self._lock:
            return replace(self._breakers.get(destination) or Breaker())

    def states(self) -> dict[str, State]:
        """Return where each breaker stands."""
        with self._lock:
            return {name: breaker.state for name, breaker in self._breakers.items()}

    def failing(self) -> dict[str, str]:
        """Return the destinations that fail now, with the reason of each."""
        with self._lock:
            return {
                name: breaker.reason
                for name, breaker in self._breakers.items()
                if breaker.state in {State.OPEN, State.TRYING}
            }
