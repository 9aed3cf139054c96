"""Where reading begins, and whether Kafka has deleted records before that."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

from aiokafka.errors import KafkaError as ClientError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiokafka import TopicPartition

    from bridge.consumer.desk import Desk
    from bridge.consumer.watch import Watch

_log = logging.getLogger("bridge.consumer")

_PAUSE = 2.0
"""Seconds between two looks: offsets jump all the time in topics that transactions write."""


class Starts:
    """Compares what was to be read next with where a partition's log begins.

    Offsets also jump where a topic is compacted or a transaction left its marks; only what lies
    before the beginning of the log is gone.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._new: set[TopicPartition] = set()
        self._suspects: dict[TopicPartition, tuple[int, int]] = {}
        self._more = asyncio.Event()
        self._given = asyncio.Event()

    def assigned(self, tps: Iterable[TopicPartition]) -> None:
        """Look at partitions that were given to this process."""
        self._suspects.clear()
        self._new = set(tps)
        self._more.set()
        self._given.set()

    def suspect(self, tp: TopicPartition, expected: int, came: int) -> None:
        """Look at a partition whose next record was not the expected one."""
        if came > expected:
            first, _ = self._suspects.get(tp, (expected, came))
            self._suspects[tp] = (first, came)
            self._more.set()

    async def look_forever(self, kafka: Any, desk: Desk) -> None:
        """Look whenever there is something to be looked at, until cancelled.

        At new partitions at once: what this process commits hides where it began.
        """
        while True:
            await self._more.wait()
            self._more.clear()
            self._given.clear()
            try:
                await self._look(kafka, desk)
            except ClientError as error:
                _log.debug("the beginnings of partitions could not be looked at: %s", error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PAUSE):
                    await self._given.wait()

    async def _look(self, kafka: Any, desk: Desk) -> None:
        new, self._new = self._new, set()
        suspects, self._suspects = self._suspects, {}
        wanted = [tp for tp in {*new, *suspects} if tp in kafka.assignment()]
        if not wanted:
            return
        given = [tp for tp in wanted if tp in new]
        # Asked first, and for all at the same time: before this process can have committed more.
        known = await asyncio.gather(*(kafka.committed(tp) for tp in given))
        begins = await kafka.beginning_offsets(wanted)
        for tp, committed in zip(given, known, strict=True):
            for partition in desk.partitions:
                if partition.tp == tp:
                    partition.start = committed if committed is not None else begins[tp]
            if committed is not None and committed < begins[tp]:
                self._watch.expired(tp.topic, tp.partition, committed, begins[tp] - committed)
        for tp, (expected, came) in suspects.items():
            missing = min(begins.get(tp, 0), came) - expected
            if missing > 0:
                self._watch.expired(tp.topic, tp.partition, expected, missing)
