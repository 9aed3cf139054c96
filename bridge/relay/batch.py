"""What is in flight: claimed batches, and the reports that come back for their rows."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import KafkaError

    from bridge.message import ClaimedRow
    from bridge.relay.meter import Sending

NO_LANES: frozenset[int] = frozenset()


class Batch:
    """One claim on its way: its rows until they are handed to the producer, then only counts.

    `open` counts rows whose outcome is not yet in the database; only the settler lowers it.
    `awaited` counts those of which Kafka has not reported yet. `claimed_at` is the monotonic time
    before the claim. `payload_bytes` came with the claim, `large_bytes` are still in the database,
    to be fetched one by one. `sending` measures its way to Kafka where anybody asked for that, from
    its first record to its last report. `lane_of` and `destination_of` tell a row's own by its id;
    `destination` is that of all rows where they share one.
    """

    __slots__ = (
        "awaited",
        "claim_id",
        "claimed_at",
        "destination",
        "destination_of",
        "destinations",
        "lane_of",
        "lanes",
        "large_bytes",
        "open",
        "payload_bytes",
        "rows",
        "sending",
    )

    def __init__(self, claim_id: str, rows: list[ClaimedRow], claimed_at: float = math.inf) -> None:
        self.claim_id = claim_id
        self.rows: Sequence[ClaimedRow] = rows
        self.open = len(rows)
        self.awaited = len(rows)
        self.lane_of: dict[int, int] = {row[0]: row[12] for row in rows if row[12] is not None}
        self.lanes = frozenset(self.lane_of.values()) if self.lane_of else NO_LANES
        self.destinations: Counter[str] = Counter([row[1] for row in rows])
        shared = len(self.destinations) == 1
        self.destination: str | None = rows[0][1] if shared else None
        self.destination_of: dict[int, str] = {} if shared else {row[0]: row[1] for row in rows}
        self.claimed_at = claimed_at
        self.sending: Sending | None = None
        size = large = 0
        for row in rows:
            value = row[8] if row[8] is not None else row[9]
            if value is not None:
                size += len(value)
            elif row[10] is not None:
                large += row[10]
        self.payload_bytes = size
        self.large_bytes = large

    def where(self, outbox_id: int) -> str:
        """Return the destination of a row."""
        return self.destination_of[outbox_id] if self.destination is None else self.destination

    def lanes_with(self, outbox_id: int) -> frozenset[int]:
        """Return the lane of a row, as a set; empty for a row without ordering key."""
        lane = self.lane_of.get(outbox_id)
        return NO_LANES if lane is None else frozenset((lane,))


class Ack(NamedTuple):
    """The broker acknowledged a row's record. `offset`: None where it told none."""

    outbox_id: int
    partition: int
    offset: int | None
    batch: Batch


class Refusal(NamedTuple):
    """A row's record was not delivered. `alone`: it was the only record of its produce batch."""

    outbox_id: int
    error: KafkaError
    alone: bool
    batch: Batch


class Fault(NamedTuple):
    """A row whose outcome is known without Kafka's word on it, or beyond it.

    Most can never be sent. `delay`: it waits for something (a partition without leader) for so many
    seconds, uncharged. `buried`: its record stands in the dead-letter topic already.
    """

    outbox_id: int
    code: str
    reason: str
    batch: Batch
    delay: float | None = None
    buried: bool = False


class Unsent(NamedTuple):
    """A row that was claimed and goes back uncharged.

    `handed`: librdkafka had it. What it purges may be a record that it was about to send once more
    after a broken connection, so such a row may have been sent.
    """

    outbox_id: int
    batch: Batch
    handed: bool = False


class Suspect(NamedTuple):
    """A row refused together with its neighbours: sent once more, alone, to find the guilty one."""

    outbox_id: int
    batch: Batch


class Letter(NamedTuple):
    """A row that is about to end FAILED and whose record goes to the dead-letter topic first."""

    outbox_id: int
    code: str
    reason: str
    batch: Batch
