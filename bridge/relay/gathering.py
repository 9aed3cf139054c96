"""Acknowledgements that wait for the rest of their batch."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bridge.relay.batch import Ack, Batch

_PATIENCE = 0.1


class Gathering:
    """Keeps acknowledgements until no more reports of their batch are awaited; the settler's.

    The rows of one claim lie side by side in the table, while each partition answers at a time of
    its own. Written together they change a page once; written as they come, the page is locked,
    changed and pruned once for each partition. None waits for longer than `patience` seconds.
    """

    def __init__(
        self, patience: float = _PATIENCE, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._patience = patience
        self._clock = clock
        self._waiting: dict[Batch, tuple[float, list[Ack]]] = {}

    def add(self, acks: Iterable[Ack]) -> None:
        """Take acknowledgements in, of which the flight knows already."""
        waiting, now = self._waiting, self._clock()
        for ack in acks:
            batch = ack[3]
            if batch not in waiting:
                waiting[batch] = now, []
            waiting[batch][1].append(ack)

    def take(self, most: int, *, hurry: bool) -> list[Ack]:
        """Return what need not wait any more, at most `most` rows; with `hurry` nothing waits."""
        ripe = self._clock() - self._patience
        taken: list[Ack] = []
        for batch, (since, acks) in list(self._waiting.items()):
            if not (hurry or batch.awaited <= 0 or since <= ripe):
                continue
            room = most - len(taken)
            taken += acks[:room]
            if len(acks) > room:
                self._waiting[batch] = since, acks[room:]
                break
            del self._waiting[batch]
        return taken
