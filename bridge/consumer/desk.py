"""Who works on what: records in lanes, one lane for each key of a partition.

The records of a lane are handled one after the other, lanes side by side. A lane that waits for its
next try holds up no other. Belongs to one event loop; nothing here talks to a server.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aiokafka import TopicPartition


class Job:
    """One record to be handled; `failures` counts what was charged, `tries` every hand-over.

    `waits` counts what was not charged, `losses` the lost databases and deadlocks of that. `alone`
    keeps it out of batches: one that it was in has failed.
    """

    __slots__ = ("alone", "failures", "lane", "losses", "record", "tries", "waits")

    def __init__(self, record: Any, lane: Lane) -> None:
        self.record = record
        self.lane = lane
        self.failures = 0
        self.tries = 0
        self.waits = 0
        self.losses = 0
        self.alone = False


class Lane:
    """The records of one key, in order; a record without key has a lane to itself."""

    __slots__ = ("busy", "jobs", "key", "partition", "timer")

    def __init__(self, key: bytes | None, partition: Partition) -> None:
        self.key = key
        self.partition = partition
        self.jobs: deque[Job] = deque()
        self.busy = False
        self.timer: asyncio.TimerHandle | None = None

    @property
    def is_free(self) -> bool:
        """Whether a worker may take it now."""
        return not self.busy and self.timer is None


class Partition:
    """One assigned partition: its lanes, and how far everything is done.

    `pending` holds the offsets that are not done, in order; `position` is the offset behind the
    last record that came, None until one came; `committed` is what Kafka was told last; `start` is
    where reading began, as far as that is known.
    """

    __slots__ = (
        "committed",
        "is_full",
        "is_lost",
        "lanes",
        "pending",
        "position",
        "size",
        "start",
        "tp",
    )

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.lanes: dict[bytes, Lane] = {}
        self.pending: OrderedDict[int, None] = OrderedDict()
        self.position: int | None = None
        self.start: int | None = None
        self.committed: int | None = None
        self.size = 0
        self.is_full = False
        self.is_lost = False

    @property
    def done_up_to(self) -> int | None:
        """The offset behind the contiguous prefix of records that are done with."""
        return next(iter(self.pending), self.position)


class Desk:
    """Hands lanes to workers and keeps the books.

    `most_records` and `most_bytes` bound what all partitions together may hold; each has its share,
    so that none is held up by another one's.
    """

    def __init__(self, most_records: int, most_bytes: int) -> None:
        self._most_records = most_records
        self._most_bytes = most_bytes
        self._partitions: dict[TopicPartition, Partition] = {}
        self._ready: deque[Lane] = deque()
        self._takers: deque[asyncio.Future[None]] = deque()
        self._room = asyncio.Event()
        self._is_closed = False

    @property
    def partitions(self) -> list[Partition]:
        """The partitions that this process has now."""
        return list(self._partitions.values())

    def assign(self, tps: Iterable[TopicPartition]) -> None:
        """Begin with partitions that were given to this process."""
        for tp in tps:
            self._partitions[tp] = Partition(tp)
        self._room.set()

    def take_back(self) -> list[Partition]:
        """Give all partitions up: nothing of theirs is begun any more.

        What is being worked on may still be finished; its offsets count until `forget`.
        """
        for partition in self._partitions.values():
            partition.is_lost = True
            for lane in partition.lanes.values():
                if lane.timer is not None:
                    lane.timer.cancel()
                    lane.timer = None
        self._ready.clear()
        return self.partitions

    def forget(self) -> None:
        """Close the books of all partitions that were taken back."""
        self._partitions = {tp: p for tp, p in self._partitions.items() if not p.is_lost}

    def close(self) -> None:
        """Let every worker that waits, or comes to wait, end."""
        self._is_closed = True
        self._wake(len(self._takers))

    def add(self, tp: TopicPartition, records: Sequence[Any]) -> int | None:
        """Take records of a partition in, in order; those of a partition not ours are left out.

        Return the offset that was expected where the first one has another.
        """
        partition = self._partitions.get(tp)
        if partition is None or partition.is_lost:
            return None
        expected = partition.position
        freed = 0
        for record in records:
            partition.pending[record.offset] = None
            partition.size += _size(record)
            lane = partition.lanes.get(record.key) if record.key is not None else None
            if lane is None:
                lane = Lane(record.key, partition)
                if record.key is not None:
                    partition.lanes[record.key] = lane
            lane.jobs.append(Job(record, lane))
            if len(lane.jobs) == 1 and lane.is_free:
                self._ready.append(lane)
                freed += 1
        partition.position = records[-1].offset + 1
        self._wake(freed)
        return expected if expected not in {None, records[0].offset} else None

    def open_partitions(self) -> list[TopicPartition]:
        """Return the partitions of which more records may be fetched now.

        One that was full is open again when it is half empty: records come in numbers.
        """
        found = []
        for partition in self._partitions.values():
            load = self._load(partition)
            partition.is_full = load >= (_HALF if partition.is_full else 1.0)
            if not partition.is_full and not partition.is_lost:
                found.append(partition.tp)
        if not found:
            self._room.clear()
        return found

    async def wait_for_room(self) -> None:
        """Wait until a full partition is open again, or partitions come."""
        await self._room.wait()

    def _load(self, partition: Partition) -> float:
        share = max(1, len(self._partitions))
        return share * max(
            len(partition.pending) / self._most_records, partition.size / self._most_bytes
        )

    async def take(self, most: int = 1, linger: float = 0.0) -> list[Job]:
        """Wait for work and return it; an empty list when the desk is closed.

        At most `most` jobs, of as many lanes; of each lane the first ones in order. A job that must
        be alone comes alone. `linger` is how many seconds to wait for more once there is some.
        """
        while not self._is_closed:
            if not self._ready:
                await self._call()
                continue
            if linger and len(self._ready) < most:
                await asyncio.sleep(linger)
            if jobs := self._gather(most):
                return jobs
        return []

    async def _call(self) -> None:
        """Wait until a lane is ready, or the desk closes."""
        taker = asyncio.get_running_loop().create_future()
        self._takers.append(taker)
        try:
            await taker
        except asyncio.CancelledError:
            if taker in self._takers:
                self._takers.remove(taker)
            elif self._ready:
                self._wake(1)  # the call was for us; another one may take it
            raise

    def _gather(self, most: int) -> list[Job]:
        lanes: list[Lane] = []
        while self._ready and len(lanes) < most:
            lane = self._ready.popleft()
            if not lane.jobs[0].alone:
                lane.busy = True
                lanes.append(lane)
            elif not lanes:
                lane.busy = True
                return [lane.jobs[0]]
            else:
                self._ready.appendleft(lane)  # the next one to be taken
                break
        return _share(lanes, most)

    def finish(self, job: Job) -> None:
        """Mark the first job of a lane as done with."""
        lane = job.lane
        first = lane.jobs.popleft()
        if first is not job:
            raise AssertionError("jobs of a lane end in order")
        partition = lane.partition
        partition.pending.pop(job.record.offset, None)
        partition.size -= _size(job.record)

    def release(self, lane: Lane, after: float = 0.0) -> None:
        """Give a lane back, to be taken again now or after so many seconds."""
        lane.busy = False
        if lane.partition.is_full and self._load(lane.partition) < _HALF:
            self._room.set()
        if lane.partition.is_lost:
            return
        if not lane.jobs:
            if lane.key is not None:
                lane.partition.lanes.pop(lane.key, None)
            return
        if after > 0:
            lane.timer = asyncio.get_running_loop().call_later(after, self._due, lane)
            return
        self._ready.append(lane)
        self._wake(1)

    def _due(self, lane: Lane) -> None:
        lane.timer = None
        if lane.partition.is_lost:
            return
        self._ready.append(lane)
        self._wake(1)

    def _wake(self, count: int) -> None:
        while count > 0 and self._takers:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                count -= 1


def _share(lanes: Sequence[Lane], most: int) -> list[Job]:
    """Return at most `most` jobs of lanes: as many of each, then what else there is room for."""
    jobs: list[Job] = []
    each = max(1, most // len(lanes)) if lanes else 0
    cut: set[Lane] = set()
    for start, stop in ((0, each), (each, most)):
        for lane in lanes:
            if lane in cut:
                continue
            for job in islice(lane.jobs, start, min(stop, start + most - len(jobs))):
                if job.alone:
                    cut.add(lane)
                    break
                jobs.append(job)
    return jobs


def _size(record: Any) -> int:
    return (len(record.value) if record.value is not None else 0) + _OVERHEAD


_HALF = 0.5
_OVERHEAD = 500
"""Bytes that a record takes beside its payload, roughly."""
