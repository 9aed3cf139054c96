"""The books of lanes and offsets, against a model: random work, every order of events."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition

from bridge.consumer.desk import Desk, Job

TP = TopicPartition("t", 0)


def record(offset: int, key: bytes | None, size: int = 1) -> Any:
    return SimpleNamespace(offset=offset, key=key, value=b"x" * size)


def desk_with(*records: Any) -> Desk:
    desk = Desk(1000, 1_000_000)
    desk.assign([TP])
    desk.add(TP, records)
    return desk


def end(desk: Desk, jobs: list[Job]) -> None:
    for job in jobs:
        desk.finish(job)
    for lane in {job.lane for job in jobs}:
        desk.release(lane)


@pytest.mark.parametrize("seed", range(20))
async def test_random_work_keeps_order_per_key_and_the_prefix(seed: int) -> None:
    """Offsets with holes, keys of all kinds, failures, batches of all sizes."""
    dice = random.Random(seed)  # noqa: S311 - no secret
    desk = Desk(10_000, 10_000_000)
    desk.assign([TP])
    (partition,) = desk.partitions
    offset = 0
    sent: list[Any] = []
    done: list[Any] = []
    taken: list[list[Job]] = []
    keys = [None, b"", *(bytes([n]) for n in range(6))]
    while len(done) < 300:
        if offset < 900 and dice.random() < 0.4:
            batch = []
            for _ in range(dice.randrange(1, 8)):
                offset += dice.randrange(1, 4)
                batch.append(record(offset, dice.choice(keys)))
            desk.add(TP, batch)
            sent += batch
        if dice.random() < 0.6 and len(sent) > len(done) + sum(map(len, taken)):
            free = [lane for lane in partition.lanes.values() if lane.is_free and lane.jobs]
            if free or any(job.key is None for job in sent):
                jobs = desk._gather(dice.randrange(1, 12))
                busy = {id(job.lane) for held in taken for job in held}
                assert not busy & {id(job.lane) for job in jobs}
                if jobs:
                    taken.append(jobs)
        if taken and dice.random() < 0.6:
            jobs = taken.pop(dice.randrange(len(taken)))
            failing = dice.randrange(len(jobs) * 2)
            cut = {jobs[failing].lane} if failing < len(jobs) else set()
            for job in jobs:
                if job.lane in cut:
                    job.alone = dice.random() < 0.5
                    continue
                desk.finish(job)
                done.append(job.record)
            for lane in dict.fromkeys(job.lane for job in jobs):
                desk.release(lane)
        open_ = {one.offset for one in sent} - {one.offset for one in done}
        expected = min(open_) if open_ else partition.position
        assert partition.done_up_to == expected
    for key in keys[1:]:
        mine = [one.offset for one in done if one.key == key]
        assert mine == sorted(mine)


async def test_take_back_begins_nothing_more_and_counts_what_ends() -> None:
    desk = desk_with(record(5, b"a"), record(6, b"a"), record(7, b"b"), record(9, b"c"))
    (partition,) = desk.partitions
    first = await desk.take()
    second = await desk.take()
    desk.take_back()
    end(desk, first)
    assert partition.done_up_to == 6
    end(desk, second)
    desk.add(TP, [record(10, b"d")])
    assert desk._gather(10) == []
    assert partition.done_up_to == 6
    desk.forget()
    assert desk.partitions == []
    desk.assign([TP])
    assert desk.partitions[0].done_up_to is None


async def test_job_that_must_be_alone_comes_alone_and_holds_its_lane() -> None:
    desk = desk_with(*(record(n, b"ab"[n % 2 : n % 2 + 1]) for n in range(8)))
    jobs = await desk.take(8)
    assert [job.record.offset for job in jobs] == [0, 2, 4, 6, 1, 3, 5, 7]
    jobs[1].alone = True  # offset 2
    desk.finish(jobs[0])
    for lane in {job.lane for job in jobs}:
        desk.release(lane)
    seen: list[int] = []
    while len(seen) < 7:
        jobs = await desk.take(8)
        alone = [job for job in jobs if job.alone]
        assert not alone or len(jobs) == 1
        seen += [job.record.offset for job in jobs]
        end(desk, jobs)
    assert [n for n in seen if n % 2 == 0] == [2, 4, 6]
    assert [n for n in seen if n % 2] == [1, 3, 5, 7]


async def test_full_partition_is_open_again_when_half_empty() -> None:
    desk = Desk(10, 1_000_000)
    other = TopicPartition("t", 1)
    desk.assign([TP, other])
    assert set(desk.open_partitions()) == {TP, other}
    desk.add(TP, [record(n, str(n).encode()) for n in range(5)])
    assert desk.open_partitions() == [other]
    for left in (4, 3):
        end(desk, await desk.take())
        assert len(desk.partitions[0].pending) == left
        assert desk.open_partitions() == [other]
    end(desk, await desk.take())
    assert set(desk.open_partitions()) == {TP, other}


async def test_large_payloads_fill_a_partition_by_their_size() -> None:
    desk = Desk(1000, 10_000)
    desk.assign([TP])
    desk.add(TP, [record(n, b"k", size=6000) for n in range(2)])
    assert desk.open_partitions() == []
    end(desk, await desk.take())
    end(desk, await desk.take())
    assert desk.open_partitions() == [TP]
    assert desk.partitions[0].size == 0
