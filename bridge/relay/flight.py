"""The budget of what is in flight, and the mailboxes between the stages."""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.relay.batch import Ack, Batch, Fault, Refusal, Suspect, Unsent


class Flight:
    """Rows and bytes between claim and settled outcome; bounds them and passes them on.

    The budget bounds every queue in the relay: what is claimed and not settled never exceeds
    `max_rows` rows. Half of `max_bytes` is for payloads that came with their claim (new claims wait
    while they exceed it), half for large ones that are fetched one by one: were it one budget, a
    batch could wait for bytes that only its own end gives back. New claims also wait while more
    than that is still to be fetched, so that large rows do not grow old in the queue.
    Thread-safe. Reports are appended by librdkafka's callbacks, which must never block.
    """

    def __init__(self, max_rows: int, max_bytes: int) -> None:
        self.max_rows = max_rows
        self.max_bytes = max_bytes
        self.rows = 0
        self.payload_bytes = 0
        self.large_bytes = 0
        self.unfetched_bytes = 0
        self.to_publish: queue.SimpleQueue[Batch | list[Suspect] | None] = queue.SimpleQueue()
        self.acks: deque[Ack] = deque()
        self.refusals: deque[Refusal] = deque()
        self.faults: deque[Fault] = deque()
        self.unsent: deque[Unsent] = deque()
        self._batches: dict[str, Batch] = {}
        self._lanes: Counter[int] = Counter()
        self._held: frozenset[int] = frozenset()
        self._changed = threading.Condition()

    def enter(self, batch: Batch) -> None:
        """Take a claimed batch in and hand it to the publisher."""
        with self._changed:
            self.rows += batch.open
            self.payload_bytes += batch.payload_bytes
            self.unfetched_bytes += batch.large_bytes
            self._batches[batch.claim_id] = batch
            self._lanes.update(batch.lanes)
            self._changed.notify_all()
        self.to_publish.put(batch)

    def leave(self, rows: int, finished: list[Batch]) -> None:
        """Let settled rows go, and the batches that have no open row left."""
        with self._changed:
            self.rows -= rows
            for batch in finished:
                self.payload_bytes -= batch.payload_bytes
                self.unfetched_bytes -= batch.large_bytes
                self._batches.pop(batch.claim_id, None)
                self._lanes.subtract(batch.lanes)
            if self._held:
                self._held = frozenset(lane for lane in self._held if self._lanes[lane] > 0)
            self._changed.notify_all()

    def room(self) -> int:
        """Return how many more rows may be claimed now (0 while the byte budget is used up)."""
        if max(self.payload_bytes, self.unfetched_bytes) >= self.max_bytes // 2:
            return 0
        return self.max_rows - self.rows

    def wait_for_room(self, rows: int, timeout: float) -> bool:
        """Wait until `rows` more may be claimed; False after `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self.room() >= rows, timeout)

    def take_bytes(self, size: int, timeout: float) -> bool:
        """Reserve `size` bytes for a large payload, or wait; one beyond the budget goes alone."""
        with self._changed:
            free = self._changed.wait_for(
                lambda: self.large_bytes + size <= self.max_bytes // 2 or self.large_bytes <= 0,
                timeout,
            )
            if free:
                self.large_bytes += size
            return free

    def give_bytes(self, size: int) -> None:
        """Return bytes that `take_bytes` reserved."""
        with self._changed:
            self.large_bytes -= size
            self._changed.notify_all()

    def wait_for_work(self, timeout: float) -> bool:
        """Wait until anything is in flight; False after `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self.rows > 0, timeout)

    def wait_until_empty(self, deadline: float) -> bool:
        """Wait until nothing is in flight; False when the monotonic clock passes `deadline`."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self.rows == 0, max(0.0, deadline - time.monotonic())
            )

    @property
    def held_lanes(self) -> frozenset[int]:
        """Lanes of which rows are being given back; later rows of them must not overtake these."""
        return self._held

    def hold_lanes(self, lanes: frozenset[int]) -> None:
        """Let nothing more of these lanes out until none of their rows is in flight."""
        if lanes:
            with self._changed:
                self._held |= lanes

    def lanes_in_flight(self) -> frozenset[int]:
        """Return the lanes that have rows in flight."""
        with self._changed:
            return frozenset(lane for lane, count in self._lanes.items() if count > 0)

    def claims(self) -> frozenset[str]:
        """Return the claim ids in flight."""
        with self._changed:
            return frozenset(self._batches)

    def batches(self) -> list[Batch]:
        """Return the batches in flight."""
        with self._changed:
            return list(self._batches.values())
