"""Signs of life of the relay's threads, and which of them have none."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_GRACE = 5.0
"""Seconds beyond its time-out after which nobody waits for the database's answer any more."""


class Pulse:
    """A thread's own sign of life: `beat` in each turn, `rest` before a wait without limit."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at = math.inf

    def beat(self) -> None:
        """Give a sign of life."""
        self.at = time.monotonic()

    def rest(self) -> None:
        """Say that nothing is to be done: silence means nothing until the next beat."""
        self.at = math.inf


class Asking(Protocol):
    """What a thread waits for: a session of it."""

    asked: float
    active_at: float
    answer_timeout: float


class Vitals:
    """Tells for how long each thread has been silent; thread-safe.

    A thread that waits for PostgreSQL or Kafka is alive: that a restart would not help. So a thread
    with a session is given the time that the session's answers may take, and the others beat while
    they wait.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stages: dict[str, tuple[Pulse, Asking | None]] = {}
        self._more: list[Callable[[], Mapping[str, Pulse]]] = []

    def watch(self, stage: str, pulse: Pulse, session: Asking | None = None) -> None:
        """Watch a thread, with the session that it alone uses."""
        self._stages[stage] = (pulse, session)

    def ended(self, stage: str) -> None:
        """Hear that a thread has come to its end."""
        if stage in self._stages:
            self._stages[stage][0].rest()

    def watch_all(self, pulses: Callable[[], Mapping[str, Pulse]]) -> None:
        """Watch threads that come and go."""
        self._more.append(pulses)

    def silences(self) -> dict[str, float]:
        """Return for how many seconds each thread has given no sign of life."""
        now = self._clock()
        found = {name: _silence(now, *stage) for name, stage in list(self._stages.items())}
        for pulses in self._more:
            found |= {name: _silence(now, pulse, None) for name, pulse in pulses().items()}
        return found

    def frozen(self, limit: float) -> dict[str, float]:
        """Return the threads that have been silent for longer than `limit` seconds."""
        return {name: silence for name, silence in self.silences().items() if silence > limit}


def _silence(now: float, pulse: Pulse, session: Asking | None) -> float:
    latest = pulse.at
    if session is not None:
        asked = session.asked
        if asked and now - asked < session.answer_timeout + _GRACE:
            return 0.0
        latest = max(latest, session.active_at)
    return max(0.0, now - latest)
