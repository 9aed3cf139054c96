"""What a consumer counts, and what can be told from the ids of the messages that came.

Of one key in one partition, first occurrences come in the order of `outbox-id`. So a message that
is new to the inbox and older than one of its key that was processed is a *reordering*. Ids have
holes by nature (every destination, key and rolled-back transaction takes some), so that a missing
message shows in no id. A *gap* is counted where it can be known: records that Kafka deleted before
they were read, and holes in a sequence that the writer numbers per key itself.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

from bridge.consumer.outcomes import Fate
from bridge.telemetry import names

if TYPE_CHECKING:
    from bridge.consumer.received import Received

_log = logging.getLogger("bridge.consumer")

_KEYS_REMEMBERED = 100_000
_NAMES = {
    Fate.PROCESSED: names.CONSUMER_PROCESSED,
    Fate.DUPLICATE: names.CONSUMER_DUPLICATES,
    Fate.CONFLICT: names.CONSUMER_CONFLICTS,
    Fate.UNHANDLED: names.CONSUMER_UNHANDLED,
}


class Count(NamedTuple):
    """What is counted apart: a metric, a topic, and one more attribute with its value."""

    name: str
    topic: str
    attribute: str = ""
    value: str | bool = ""


class _Seen(NamedTuple):
    """The highest of one key so far; -1 where messages carry none."""

    outbox_id: int
    sequence: int


class Watch:
    """Counts, and remembers the highest id of the keys that came last.

    `sequence_header` names a header in which writers number the messages of each key by one up.
    After a start nothing is remembered: the first message of a key is not judged.
    """

    def __init__(self, sequence_header: str | None = None) -> None:
        self.counts: Counter[Count] = Counter()
        self._sequence_header = sequence_header
        self._seen: OrderedDict[tuple[str, int, bytes], _Seen] = OrderedDict()

    def consumed(self, topic: str, records: int) -> None:
        """Note that records came from Kafka."""
        self.counts[Count(names.CONSUMED_MESSAGES, topic)] += records

    def settled(self, topic: str, received: Received | None, fate: Fate) -> None:
        """Note that a message is done with."""
        self.counts[Count(_NAMES[fate], topic)] += 1
        if fate is Fate.PROCESSED and received is not None and received.key is not None:
            self._follow(received, (topic, received.partition, received.key))

    def conflicted(self, topic: str) -> None:
        """Note that a message's key stands for other content."""
        self.counts[Count(names.CONSUMER_CONFLICTS, topic)] += 1

    def retried(self, topic: str, *, charged: bool) -> None:
        """Note that a message has to be tried again."""
        self.counts[Count(names.CONSUMER_RETRIES, topic, names.CHARGED, charged)] += 1

    def dead_lettered(self, topic: str, code: str) -> None:
        """Note that a message went to the dead-letter topic."""
        self.counts[Count(names.CONSUMER_DEAD_LETTERS, topic, names.CODE, code)] += 1

    def blocked(self, topic: str, code: str) -> None:
        """Note that a message can neither be handled nor sent to a dead-letter topic."""
        self.counts[Count(names.CONSUMER_BLOCKED, topic, names.CODE, code)] += 1

    def expired(self, topic: str, partition: int, first: int, missing: int) -> None:
        """Note that Kafka deleted records, from offset `first` on, before they were read."""
        self.counts[Count(names.CONSUMER_GAPS, topic, names.KIND, "expired")] += missing
        _log.error(
            "%d records of %s/%d, from offset %d on, were deleted by Kafka before they were read: "
            "the topic's retention is shorter than this group was behind",
            missing,
            topic,
            partition,
            first,
        )

    def forget(self) -> None:
        """Forget the keys: others may have gone on with them."""
        self._seen.clear()

    def total(self, name: str) -> int:
        """Return one metric over all topics and attributes."""
        return sum(count for key, count in self.counts.items() if key.name == name)

    def _follow(self, received: Received, key: tuple[str, int, bytes]) -> None:
        before = self._seen.pop(key, None)
        now = _Seen(_or_none(received.outbox_id), self._sequence(received))
        if before is not None:
            self._judge(received, before, now)
            now = _Seen(max(before.outbox_id, now.outbox_id), max(before.sequence, now.sequence))
        self._seen[key] = now
        if len(self._seen) > _KEYS_REMEMBERED:
            self._seen.popitem(last=False)

    def _judge(self, received: Received, before: _Seen, now: _Seen) -> None:
        if 0 <= now.outbox_id < before.outbox_id or 0 <= now.sequence <= before.sequence:
            self.counts[Count(names.CONSUMER_REORDERINGS, received.topic)] += 1
            _log.warning(
                "%s came behind a newer message of its key (outbox-id %d behind %d)",
                received.place,
                now.outbox_id,
                before.outbox_id,
                extra={"message_key": received.message_key, "outbox_id": received.outbox_id},
            )
        elif before.sequence >= 0 and now.sequence > before.sequence + 1:
            missing = now.sequence - before.sequence - 1
            gap = Count(names.CONSUMER_GAPS, received.topic, names.KIND, "sequence")
            self.counts[gap] += missing
            _log.warning(
                "%s: %d messages of its key are missing before it (%s %d follows %d)",
                received.place,
                missing,
                self._sequence_header,
                now.sequence,
                before.sequence,
                extra={"message_key": received.message_key, "outbox_id": received.outbox_id},
            )

    def _sequence(self, received: Received) -> int:
        if self._sequence_header is None:
            return -1
        text: Any = received.headers.get(self._sequence_header, "")
        return int(text) if text.isascii() and text.isdecimal() else -1


def _or_none(outbox_id: int | None) -> int:
    return -1 if outbox_id is None else outbox_id
