"""What the hot path measures: how long Kafka and the whole way took, and how many went."""

from __future__ import annotations

import struct
import time
from collections import Counter
from typing import TYPE_CHECKING

from bridge.kafka.producer import error_name
from bridge.telemetry import names

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bridge.message import ClaimedRow
    from bridge.relay.batch import Ack, Batch, Refusal
    from bridge.relay.database_clock import DatabaseClock
    from bridge.routing import Router
    from bridge.telemetry.labels import DestinationLabels
    from bridge.telemetry.metrics import Instruments

_MICROS = 1_000_000
_NEVER = -(1 << 63)
"""How the database writes -infinity, a time that no age counts from."""


class Sending:
    """A batch on its way to Kafka, as far as it is measured. Times are monotonic.

    `acked_at` is that of the last acknowledgement; the producers' threads write it.
    """

    __slots__ = ("_due", "_due_of", "_ids", "acked_at", "handed_at", "mean", "reach", "served")

    def __init__(self, rows: Sequence[ClaimedRow]) -> None:
        # Times arrive as eight bytes each, see Session.
        self._due = b"".join([row[11] for row in rows])  # type: ignore[misc]  # bytes at run time
        self._ids = [row[0] for row in rows]
        self._due_of: dict[int, int] | None = None
        self.reach: tuple[int, int] | None = None
        """The earliest and the latest time from which a row could go out, once it was asked for."""
        self.mean = 0.0
        self.served: set[str] = set()
        """Destinations that acknowledged any of the rows."""
        self.acked_at = 0.0
        self.handed_at = time.monotonic()

    def span(self) -> tuple[int, int]:
        """Find the earliest, the latest and the mean time from which a row could go out."""
        due = self._times()
        self.mean = sum(due) / len(due)
        self.reach = min(due), max(due)
        return self.reach

    def due_of(self, outbox_id: int) -> int:
        """Return from when a row could go out."""
        if self._due_of is None:
            self._due_of = dict(zip(self._ids, self._times(), strict=True))
        return self._due_of[outbox_id]

    def _times(self) -> tuple[int, ...]:
        return struct.unpack(f">{len(self._ids)}q", self._due)


class Meter:
    """Measures batch by batch; a row costs a few tenths of a microsecond (docs/decisions/0019).

    `begin` is the publisher's, everything else the settler's.
    """

    def __init__(
        self,
        instruments: Instruments,
        labels: DestinationLabels,
        router: Router,
        clock: DatabaseClock,
    ) -> None:
        self._instruments = instruments
        self._deliveries = instruments.deliveries
        self._labels = labels
        self._router = router
        self._clock = clock
        self._attributes: dict[tuple[str, str], dict[str, str]] = {}

    def begin(self, rows: Sequence[ClaimedRow]) -> Sending:
        """Take the time when the records of a batch are handed to Kafka's client."""
        return Sending(rows)

    def reported(self, acks: Sequence[Ack], others: Iterable[Batch]) -> None:
        """Measure what Kafka acknowledged since the last time.

        `others`: batches of which rows came back otherwise; the flight knows of all this already.
        """
        sent: Counter[str] = Counter()
        batches = Counter([ack[3] for ack in acks])
        for batch, rows in batches.items():
            if batch.destination is not None:
                self._measure(batch, batch.destination, rows, acks)
                sent[batch.destination] += rows
            else:
                mine = [ack for ack in acks if ack[3] is batch]
                for destination in {batch.destination_of[ack[0]] for ack in mine}:
                    some = [ack for ack in mine if batch.destination_of[ack[0]] == destination]
                    self._measure(batch, destination, len(some), some)
                    sent[destination] += len(some)
        for destination, rows in sent.items():
            self._instruments.sent.add(rows, self._labelled(destination))
        for batch in (*batches, *others):
            if batch.awaited <= 0:
                self._end(batch)

    def refused(self, refusals: Iterable[Refusal]) -> None:
        """Measure what Kafka refused; what was purged unsent is no attempt and does not come by."""
        now = time.monotonic()
        found: dict[tuple[str, str], tuple[int, float]] = {}
        for refusal in refusals:
            batch = refusal.batch
            key = batch.where(refusal.outbox_id), error_name(refusal.error)
            rows, seconds = found.get(key, (0, 0.0))
            took = now - batch.sending.handed_at if batch.sending is not None else 0.0
            found[key] = rows + 1, max(seconds, took)
        for (destination, code), (rows, seconds) in found.items():
            attributes = self._labelled(destination, code)
            self._instruments.sent.add(rows, attributes)
            self._instruments.operations.record(seconds, attributes)

    def _end(self, batch: Batch) -> None:
        """Measure the operation as a whole: all that is to come of it has come."""
        sending, batch.sending = batch.sending, None
        if sending is not None:
            seconds = sending.acked_at - sending.handed_at
            for destination in sending.served:
                self._instruments.operations.record(seconds, self._labelled(destination))

    def _measure(self, batch: Batch, destination: str, rows: int, acks: Sequence[Ack]) -> None:
        """Measure the way of some rows of a batch, whose acknowledgement is their latest one."""
        sending = batch.sending
        if sending is None:
            return
        sending.served.add(destination)
        now = self._clock.micros(sending.acked_at)
        if now is None:
            return
        low, high = sending.reach or sending.span()
        label, histogram = self._labels.of(destination), self._deliveries
        bucket = histogram.bucket((now - low) / _MICROS)
        shortest = (now - high) / _MICROS
        if shortest >= 0 and low > _NEVER and histogram.bucket(shortest) == bucket:
            # All in one bucket, as most of a backlog: nobody needs to know which row is which.
            histogram.add(label, bucket, rows, rows * (now - sending.mean) / _MICROS)
            return
        due = [sending.due_of(ack[0]) for ack in acks if ack[3] is batch]
        waits = [max(0.0, (now - one) / _MICROS) for one in due if one > _NEVER]
        histogram.add_each(label, waits)

    def _labelled(self, destination: str, error: str = "") -> dict[str, str]:
        """Return the attributes of the semantic conventions for a destination's topic."""
        label = self._labels.of(destination)
        found = self._attributes.get((label, error))
        if found is None:
            topic = label if label == names.OTHER else self._router.route(destination).topic
            found = {
                names.MESSAGING_SYSTEM: names.KAFKA,
                names.MESSAGING_OPERATION_NAME: "send",
                names.MESSAGING_OPERATION_TYPE: "send",
                names.MESSAGING_DESTINATION_NAME: topic,
            }
            if error:
                found[names.ERROR_TYPE] = error
            self._attributes[label, error] = found
        return found
