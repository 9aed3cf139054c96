"""What is in flight: claimed batches, and the reports that come back for their rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import KafkaError

    from bridge.message import ClaimedRow


class Batch:
    """One claim on its way: its rows until they are handed to the producer, then only counts.

    `open` counts rows whose outcome is not yet in the database; only the settler lowers it.
    `claimed_at` is the monotonic time before the claim. `payload_bytes` came with the claim,
    `large_bytes` are still in the database, to be fetched one by one.
    """

    __slots__ = ("claim_id", "claimed_at", "lanes", "large_bytes", "open", "payload_bytes", "rows")

    def __init__(self, claim_id: str, rows: list[ClaimedRow], claimed_at: float = math.inf) -> None:
        self.claim_id = claim_id
        self.rows: Sequence[ClaimedRow] = rows
        self.open = len(rows)
        self.lanes = frozenset(row[12] for row in rows if row[12] is not None)
        self.claimed_at = claimed_at
        size = large = 0
        for row in rows:
            value = row[8] if row[8] is not None else row[9]
            if value is not None:
                size += len(value)
            elif row[10] is not None:
                large += row[10]
        self.payload_bytes = size
        self.large_bytes = large


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
    """A row that never reached the producer because it can never be sent."""

    outbox_id: int
    code: str
    reason: str
    batch: Batch


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
