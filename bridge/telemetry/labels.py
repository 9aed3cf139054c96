"""Which destinations have label values of their own."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from bridge.telemetry.names import OTHER

if TYPE_CHECKING:
    from collections.abc import Iterable


class DestinationLabels:
    """Names destinations in the order in which they come, at most `most`; the rest are `other`.

    A name once given stays for the life of the process, or else series would jump. `reserved`
    (those that routes name) have their place from the start. Thread-safe.
    """

    def __init__(self, most: int, reserved: Iterable[str] = ()) -> None:
        self._most = most
        self._labels: dict[str, str] = {}
        self._lock = threading.Lock()
        for name in reserved:
            self.of(name)

    def of(self, destination: str) -> str:
        """Return the label value of a destination."""
        label = self._labels.get(destination)
        return self._add(destination) if label is None else label

    def known(self) -> list[str]:
        """Return the label values given so far, `other` not among them."""
        return list(self._labels)

    def _add(self, destination: str) -> str:
        with self._lock:
            if len(self._labels) >= self._most and destination not in self._labels:
                return OTHER
            return self._labels.setdefault(destination, destination)
