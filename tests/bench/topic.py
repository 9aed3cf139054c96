"""What arrived in a topic, and when the broker appended it."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, TopicPartition

from tests.bench.figures import BenchError
from tests.bench.lab import PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Callable

_READ_SECONDS = 120.0
_LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class Arrival:
    """All records of a topic: how many, how many different keys, and the seconds that they span."""

    records: int
    keys: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Records per second from the first to the last."""
        return (self.records - 1) / self.seconds if self.seconds else 0.0


class TopicReader:
    """Reads one topic from its beginning, outside of what is measured."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._parts = [TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "bench",
                "enable.auto.commit": False,
                "enable.partition.eof": False,
            }
        )

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def end(self) -> int:
        """Return how many records the topic holds now."""
        return sum(
            int(self._consumer.get_watermark_offsets(part, timeout=10, cached=False)[1])
            for part in self._parts
        )

    def read(self) -> Arrival:
        """Read all of it; raises BenchError where that takes too long."""
        wanted = self.end()
        deadline = time.monotonic() + _READ_SECONDS
        self._consumer.assign(self._parts)
        keys: set[bytes | None] = set()
        first, last, records = 1 << 62, 0, 0
        while records < wanted:
            for message in self._consumer.consume(10_000, timeout=0.5):
                if message.error():
                    raise BenchError(f"the topic cannot be read: {message.error()}")
                appended = message.timestamp()[1]
                first, last = min(first, appended), max(last, appended)
                keys.add(message.key())
                records += 1
            if time.monotonic() > deadline:
                raise BenchError(f"only {records} of {wanted} records read in {_READ_SECONDS} s")
        return Arrival(records, len(keys), (last - first) / 1000)


def await_records(
    bootstrap_servers: str,
    topic: str,
    records: int,
    timeout: float,
    *,
    look: Callable[[int], None] = lambda _: None,
) -> None:
    """Wait until the topic holds that many records; raises BenchError after `timeout` seconds.

    `look` is called with the number of records each time that it was read, and may raise.
    """
    deadline = time.monotonic() + timeout
    with closing(TopicReader(bootstrap_servers, topic)) as reader:
        while (found := reader.end()) < records:
            if time.monotonic() > deadline:
                raise BenchError(f"{found} of {records} records arrived in {timeout:.0f} s")
            look(found)
            time.sleep(_LOOK_SECONDS)
