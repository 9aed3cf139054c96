"""The budget of what is in flight, and the mailboxes between the stages."""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter, deque
from typing import TYPE_CHECKING

from bridge.relay.accounts import Account, Accounts, by_destination
from bridge.relay.lanes import LANES

if TYPE_CHECKING:
    from collections.abc import Collection

    from bridge.relay.batch import Ack, Batch, Fault, Letter, Refusal, Suspect, Unsent

    Work = Batch | list[Suspect] | list[Letter]


ALL_LANES = frozenset(range(LANES))


class Flight:
    """Rows and bytes between claim and settled outcome; bounds them and passes them on.

    The budget bounds every queue in the relay: what is claimed and not settled never exceeds
    `max_rows` rows. Half of `max_bytes` is for payloads that came with their claim (new claims wait
    while they exceed it), half for large ones that are fetched one by one: were it one budget, a
    batch could wait for bytes that only its own end gives back. New claims also wait while more
    than that is still to be fetched, so that large rows do not grow old in the queue. Rows that are
    set aside (see Account) do not count, up to `max_rows` of them.
    Thread-safe. Reports are appended by librdkafka's callbacks, which must never block.
    """

    def __init__(self, max_rows: int, max_bytes: int) -> None:
        self.max_rows = max_rows
        self.max_bytes = max_bytes
        self.rows = 0
        self.payload_bytes = 0
        self.large_bytes = 0
        self.unfetched_bytes = 0
        self.held_lanes: frozenset[int] = frozenset()
        """Lanes of which rows failed or are being given back: later ones must not overtake these.

        Replaced as a whole, so that it may be read without the lock."""
        self.to_publish: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self.acks: deque[Ack] = deque()
        self.refusals: deque[Refusal] = deque()
        self.faults: deque[Fault] = deque()
        self.unsent: deque[Unsent] = deque()
        self._batches: dict[str, Batch] = {}
        self._lanes: Counter[int] = Counter()
        self._accounts = Accounts()
        self._is_frozen = False
        self._changed = threading.Condition()

    def enter(self, batch: Batch) -> None:
        """Take a claimed batch in and hand it to the publisher."""
        with self._changed:
            self.rows += batch.open
            self.payload_bytes += batch.payload_bytes
            self.unfetched_bytes += batch.large_bytes
            self._batches[batch.claim_id] = batch
            self._lanes.update(batch.lanes)
            self._accounts.enter(batch.destinations)
            self._changed.notify_all()
        self.to_publish.put(batch)

    def report(self, items: Collection[tuple[int, Batch]]) -> None:
        """Note that Kafka's word on these rows has come, whatever it is."""
        batches = Counter([batch for _, batch in items])
        with self._changed:
            for batch, rows in batches.items():
                batch.awaited -= rows
            self._accounts.report(by_destination(batches, items))

    def leave(self, items: Collection[tuple[int, Batch]]) -> list[Batch]:
        """Let settled rows go; returns the batches that have no open row left."""
        batches = Counter([batch for _, batch in items])
        finished = []
        with self._changed:
            self.rows -= len(items)
            self._accounts.leave(by_destination(batches, items))
            for batch, rows in batches.items():
                batch.open -= rows
                if batch.open:
                    continue
                finished.append(batch)
                self.payload_bytes -= batch.payload_bytes
                self.unfetched_bytes -= batch.large_bytes
                self._batches.pop(batch.claim_id, None)
                self._lanes.subtract(batch.lanes)
            if self.held_lanes and not self._is_frozen:
                self._let_go()
            self._changed.notify_all()
        return finished

    def _let_go(self) -> None:
        self.held_lanes = frozenset(lane for lane in self.held_lanes if self._lanes[lane] > 0)

    def account(self, destination: str) -> Account:
        """Return what a destination has in flight."""
        with self._changed:
            return self._accounts.find(destination)

    def accounts(self) -> list[tuple[str, Account]]:
        """Return what each destination has in flight."""
        with self._changed:
            return self._accounts.items()

    def put_aside(self, destination: str) -> None:
        """Leave what a destination awaits now out of the budgets: it waits for a lost leader."""
        with self._changed:
            self._accounts.put_aside(destination, self.max_rows)
            self._changed.notify_all()

    def slow_destinations(self, before: float) -> set[str]:
        """Return the destinations with rows claimed before then of which Kafka has not reported."""
        with self._changed:
            slow = [b for b in self._batches.values() if b.awaited > 0 and b.claimed_at < before]
            names = {name for batch in slow for name in batch.destinations}
            return {name for name in names if self._accounts.find(name).awaited > 0}

    def oldest_ordered(self) -> float | None:
        """Return when the oldest ordered batch was claimed that awaits reports, or None."""
        with self._changed:
            return min(
                (b.claimed_at for b in self._batches.values() if b.awaited > 0 and b.lanes),
                default=None,
            )

    def wait_for_change(self, timeout: float) -> None:
        """Wait until anything enters, is settled or is set aside."""
        with self._changed:
            self._changed.wait(timeout)

    def room(self) -> int:
        """Return how many more rows may be claimed now (0 while the byte budget is used up)."""
        if max(self.payload_bytes, self.unfetched_bytes) >= self.max_bytes // 2:
            return 0
        return self.max_rows - self.rows + self._accounts.set_aside

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

    def hold_lanes(self, lanes: frozenset[int]) -> None:
        """Let nothing more of these lanes out until none of their rows is in flight."""
        if lanes:
            with self._changed:
                self.held_lanes |= lanes

    def freeze_lanes(self, *, frozen: bool) -> None:
        """Hold all lanes whatever is in flight; or, no longer frozen, those with rows in flight."""
        with self._changed:
            self._is_frozen = frozen
            if frozen:
                self.held_lanes = ALL_LANES
            else:
                self._let_go()
            self._changed.notify_all()

    def is_alone(self, lane: int) -> bool:
        """Tell whether a single batch in flight has rows of this lane."""
        with self._changed:
            return self._lanes[lane] <= 1

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
