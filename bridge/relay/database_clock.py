"""The database's clock as seen from here, so that ages count by it alone."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.database.session import Session

_KEPT = 6
"""Readings of which the quickest counts: its error is at most half its round trip."""
INTERVAL = 10.0
"""Seconds between two readings."""


class DatabaseClock:
    """Turns monotonic times of this process into times of the database.

    Rows carry times of the database's clock, and this machine's may differ from it. Written by one
    thread, read by any.
    """

    def __init__(self) -> None:
        self._readings: deque[tuple[float, float]] = deque(maxlen=_KEPT)
        self._offset: float | None = None

    def read(self, session: Session) -> None:
        """Ask the server once; raises as the session does."""
        asked = time.monotonic()
        micros: int = session.value("read_clock")
        self.note(asked, time.monotonic(), micros)

    def note(self, asked: float, answered: float, micros: int) -> None:
        """Take a reading: the server's time between two monotonic times."""
        middle = (asked + answered) / 2
        self._readings.append((answered - asked, micros - middle * 1_000_000))
        self._offset = min(self._readings)[1]

    def micros(self, monotonic: float) -> float | None:
        """Return microseconds since 2000-01-01 UTC; None while no reading was taken."""
        return None if self._offset is None else self._offset + monotonic * 1_000_000
