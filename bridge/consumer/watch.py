"""What a consumer counts, and what it can tell from outbox ids."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Any

from bridge.consumer.outcomes import Fate

if TYPE_CHECKING:
    from bridge.consumer.received import Received

_KEYS_REMEMBERED = 100_000


class Watch:
    """Counts by fate; sees messages of one key that came out of order."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._highest: OrderedDict[tuple[str, int, bytes], int] = OrderedDict()

    def settled(self, record: Any, received: Received | None, fate: Fate) -> None:
        """Note that a message is done with."""
        del record
        self.counts[fate] += 1
        if fate is Fate.PROCESSED and received is not None:
            self._follow(received)

    def retried(self, *, charged: bool) -> None:
        """Note that a message has to be tried again."""
        self.counts["charged" if charged else "uncharged"] += 1

    def dead_lettered(self, record: Any, code: str) -> None:
        """Note that a message went to the dead-letter topic."""
        del record, code
        self.counts[Fate.DEAD_LETTERED] += 1

    def blocked(self, code: str) -> None:
        """Note that a message can neither be handled nor sent to a dead-letter topic."""
        del code
        self.counts["blocked"] += 1

    def _follow(self, received: Received) -> None:
        if received.key is None or received.outbox_id is None:
            return
        lane = (received.topic, received.partition, received.key)
        highest = self._highest.pop(lane, -1)
        if received.outbox_id < highest:
            self.counts["reordered"] += 1
        self._highest[lane] = max(highest, received.outbox_id)
        if len(self._highest) > _KEYS_REMEMBERED:
            self._highest.popitem(last=False)
