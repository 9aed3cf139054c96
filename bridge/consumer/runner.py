"""Runs a consumer: polls Kafka, keeps workers, commits offsets, hands partitions over, stops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import (
    CommitFailedError,
    CorruptRecordException,
    IllegalStateError,
    KafkaConnectionError,
)
from aiokafka.errors import KafkaError as ClientError

from bridge.consumer.desk import Desk, Partition
from bridge.consumer.spans import Spans
from bridge.consumer.starts import Starts
from bridge.consumer.worker import Rules, Worker
from bridge.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from bridge.consumer.meters import Meters, Place
    from bridge.consumer.options import Options
    from bridge.consumer.watch import Watch
    from bridge.consumer.work import Work

    Duty = Callable[[], Awaitable[None]]

_log = logging.getLogger("bridge.consumer")

_POLL_MS = 200
_FULL_POLL_MS = 20
"""While one partition is full: its room is not what getmany waits for."""
_POLL_RECORDS = 500
_ERROR_PAUSE = 1.0
_COMMIT_SECONDS = 5.0
_ALIVE_SHARE = 3


class Runner:
    """One run, from the first connection to the last commit."""

    def __init__(
        self,
        options: Options,
        rules: Rules,
        watch: Watch,
        meters: Meters,
        new_work: Callable[[], Work],
        *,
        as_child: bool,
        duties: Iterable[Duty] = (),
    ) -> None:
        self._options = options
        self._rules = rules
        self._watch = watch
        self._meters = meters
        self._spans = Spans(
            meters, group=options.group, client_id=options.client_id, as_child=as_child
        )
        self._new_work = new_work
        self._more_duties = tuple(duties)
        self._starts = Starts(watch)
        self._desk = Desk(options.max_records, options.max_bytes)
        self._kafka: AIOKafkaConsumer | None = None
        self._workers: dict[Worker, asyncio.Task[None]] = {}
        self._stop = asyncio.Event()
        self._force = asyncio.Event()
        self._commit_lock = asyncio.Lock()
        self._one_by_one = False
        self.is_ready = False
        """Whether it has its partitions: not before the first, and not amid a change."""
        self.is_handing_over = False
        """Whether handlers are awaited before partitions go."""
        self.rebalances = 0
        """How often partitions were assigned."""

    def stop(self) -> None:
        """Take nothing more in, finish what is in hand, commit, leave the group."""
        self._stop.set()

    def force(self) -> None:
        """Stop without waiting for handlers."""
        self._force.set()
        self._stop.set()

    @property
    def partitions(self) -> list[Partition]:
        """The partitions that this process has now."""
        return self._desk.partitions

    @property
    def kafka(self) -> AIOKafkaConsumer:
        """The Kafka client of this run."""
        if self._kafka is None:
            raise KafkaError("the consumer has not been started")
        return self._kafka

    async def run(self) -> None:
        """Consume until `stop`; raises KafkaError where Kafka says that it cannot go on."""
        self._kafka = AIOKafkaConsumer(**self._options.consumer_options())
        failure: BaseException | None = None
        try:
            await self._start(self._kafka)
            for _ in range(self._options.concurrency):
                self._hire()
            failure = await self._until_stop()
        finally:
            await self._end(self._kafka)
        if failure is not None:
            raise failure

    async def _start(self, kafka: AIOKafkaConsumer) -> None:
        kafka.subscribe(topics=list(self._options.topics), listener=_Listener(self))
        starting = asyncio.ensure_future(kafka.start())
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
        except ClientError as error:
            raise KafkaError(
                f"cannot start to consume {', '.join(self._options.topics)} from "
                f"{self._options.bootstrap_servers}: {error}"
            ) from error
        finally:
            stopping.cancel()
            if not starting.done():
                starting.cancel()
                with contextlib.suppress(asyncio.CancelledError, ClientError):
                    await starting

    async def _until_stop(self) -> BaseException | None:
        """Return when told to stop (None), or with what made going on impossible."""
        duties: dict[asyncio.Future[Any], Duty] = {
            asyncio.ensure_future(duty()): duty
            for duty in (
                self._poll_forever,
                self._commit_forever,
                lambda: self._starts.look_forever(self.kafka, self._desk),
                *self._more_duties,
            )
        }
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            while not stopping.done():
                watched: set[asyncio.Future[Any]] = {*duties, stopping, *self._workers.values()}
                done, _ = await asyncio.wait(
                    watched, timeout=1, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done - {stopping}:
                    if task.cancelled():
                        await self._begin_again(task, duties)
                    elif (error := task.exception()) is not None:
                        return error
            return None
        finally:
            stopping.cancel()
            for duty in duties:
                duty.cancel()
            await asyncio.gather(*duties, return_exceptions=True)

    async def _begin_again(
        self, task: asyncio.Future[Any], duties: dict[asyncio.Future[Any], Duty]
    ) -> None:
        """Replace what ended because the Kafka client cancelled a request of its own."""
        _log.warning("Kafka's client gave a request up; going on")
        await asyncio.sleep(_ERROR_PAUSE)
        if (duty := duties.pop(task, None)) is not None:
            duties[asyncio.ensure_future(duty())] = duty
            return
        for worker in [one for one, its_task in self._workers.items() if its_task is task]:
            worker.abandon()
            del self._workers[worker]
            self._hire()

    # Taking in.

    async def _poll_forever(self) -> None:
        kafka = self.kafka
        while True:
            tps = self._desk.open_partitions()
            partitions = self._desk.partitions
            if partitions and not tps:
                await self._wait_for_room(kafka)
                continue
            try:
                if self._one_by_one and tps:
                    for tp in tps:
                        await self._poll(kafka, tp, timeout_ms=_FULL_POLL_MS)
                elif len(tps) == len(partitions):
                    await self._poll(kafka, timeout_ms=_POLL_MS)
                else:
                    await self._poll(kafka, *tps, timeout_ms=_FULL_POLL_MS)
            except ClientError as error:
                await self._after_error(kafka, error)
            except asyncio.CancelledError:
                if _is_cancelled_by_us():
                    raise
                await self._after_error(kafka, KafkaConnectionError("a request was given up"))

    async def _poll(self, kafka: AIOKafkaConsumer, *tps: TopicPartition, timeout_ms: int) -> None:
        records = await kafka.getmany(*tps, timeout_ms=timeout_ms, max_records=_POLL_RECORDS)
        # No await between the answer and the desk: a rebalance begins with one.
        for tp, batch in records.items():
            self._watch.consumed(tp.topic, len(batch))
            expected = self._desk.add(tp, batch)
            if expected is not None:
                self._starts.suspect(tp, expected, batch[0].offset)

    async def _wait_for_room(self, kafka: AIOKafkaConsumer) -> None:
        """Wait, and show Kafka now and then that this consumer is alive, or it leaves the group."""
        try:
            async with asyncio.timeout(self._options.max_poll_interval / _ALIVE_SHARE):
                await self._desk.wait_for_room()
        except TimeoutError:
            tps = kafka.assignment()
            kafka.pause(*tps)
            try:
                await kafka.getmany(timeout_ms=0)
            finally:
                kafka.resume(*(tps & kafka.assignment()))

    async def _after_error(self, kafka: AIOKafkaConsumer, error: ClientError) -> None:
        is_corrupt = isinstance(error, CorruptRecordException)
        if not (error.retriable or is_corrupt or isinstance(error, KafkaConnectionError)):
            raise KafkaError(f"Kafka refuses to go on: {type(error).__name__}: {error}") from error
        _log.log(
            logging.ERROR if is_corrupt else logging.WARNING,
            "Kafka: %s: %s; trying again",
            type(error).__name__,
            error,
        )
        # A partition that cannot be read must not take along what others answer.
        self._one_by_one = self._one_by_one or is_corrupt
        with contextlib.suppress(ClientError):
            await self._set_back(kafka)
        await asyncio.sleep(_ERROR_PAUSE)

    async def _set_back(self, kafka: AIOKafkaConsumer) -> None:
        """Let everything that did not come be read again.

        What stands before an error in the same answer is thrown away by the client, which has moved
        its position all the same.
        """
        for partition in self._desk.partitions:
            tp, wanted = partition.tp, partition.position
            if wanted is None:
                wanted = await kafka.committed(tp)
            if wanted is None:
                wanted = (await kafka.beginning_offsets([tp]))[tp]
            if not partition.is_lost and tp in kafka.assignment():
                kafka.seek(tp, wanted)

    # Offsets.

    async def _commit_forever(self) -> None:
        while True:
            await asyncio.sleep(self._options.commit_interval)
            await self._commit()
            self._tell()

    async def _commit(self) -> None:
        """Tell Kafka how far everything is done, partition by partition."""
        async with self._commit_lock:
            moved = {
                partition: done
                for partition in self._desk.partitions
                if (done := partition.done_up_to) is not None and done != partition.committed
            }
            if not moved:
                return
            try:
                await self.kafka.commit({partition.tp: done for partition, done in moved.items()})
            except (CommitFailedError, IllegalStateError) as error:
                # The partitions are somebody else's; what was done again is absorbed there.
                _log.info("offsets were not committed: %s", error)
            except ClientError as error:
                _log.warning("offsets could not be committed: %s; tried again", error)
            except asyncio.CancelledError:
                if _is_cancelled_by_us():
                    raise
                _log.warning("offsets could not be committed: given up by the client; tried again")
            else:
                for partition, done in moved.items():
                    partition.committed = done

    def _tell(self) -> None:
        """Pass metrics on."""
        self._meters.flush()
        places: dict[Place, tuple[int | None, int]] = {}
        for partition in self._desk.partitions:
            tp = partition.tp
            if tp in self.kafka.assignment():
                end, done = self.kafka.highwater(tp), partition.done_up_to or partition.start
                lag = None if end is None or done is None else max(0, end - done)
                places[tp.topic, tp.partition] = (lag, len(partition.pending))
        self._meters.show(places)

    # Rebalances.

    async def revoked(self) -> None:
        """Give all partitions up: finish what is in hand within the time, commit, forget."""
        self.is_ready = False
        partitions = self._desk.take_back()
        if partitions:
            await self._drain(self._options.drain_timeout)
            await self._commit_in_time()
        self._desk.forget()
        self._watch.forget()

    def assigned(self, tps: Iterable[TopicPartition]) -> None:
        """Begin with partitions."""
        self._desk.assign(tps)
        self._starts.assigned(tps)
        self.is_ready = True
        self.rebalances += 1

    async def _commit_in_time(self) -> None:
        try:
            async with asyncio.timeout(_COMMIT_SECONDS):
                await self._commit()
        except TimeoutError:
            _log.warning("offsets could not be committed within %.0f s", _COMMIT_SECONDS)

    async def _drain(self, seconds: float) -> None:
        """Wait until no worker has anything in hand; after so many seconds, make it so."""
        self.is_handing_over = True
        try:
            await self._wait_for_workers(seconds)
        finally:
            self.is_handing_over = False

    async def _wait_for_workers(self, seconds: float) -> None:
        busy = [worker for worker in self._workers if not worker.is_idle]
        if not busy:
            return
        waiting = [asyncio.ensure_future(worker.wait_until_idle()) for worker in busy]
        forced = asyncio.ensure_future(self._force.wait())
        all_idle = asyncio.gather(*waiting)
        ends: set[asyncio.Future[Any]] = {all_idle, forced}
        await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        forced.cancel()
        all_idle.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await all_idle
        await self._abandon([worker for worker in busy if not worker.is_idle])

    async def _abandon(self, workers: list[Worker]) -> None:
        """Roll back what workers do, and let new ones take their places."""
        if not workers:
            return
        _log.warning("%d handlers did not end in time; their work is rolled back", len(workers))
        tasks = [self._workers.pop(worker) for worker in workers]
        for worker, task in zip(workers, tasks, strict=True):
            worker.abandon()
            task.cancel()
        await asyncio.wait(tasks, timeout=_ABANDON_SECONDS)
        for task in tasks:
            task.add_done_callback(_forget_result)
        for _ in workers:
            self._hire()

    def _hire(self) -> None:
        worker = Worker(self._rules, self._desk, self._watch, self._spans, self._new_work())
        self._workers[worker] = asyncio.ensure_future(worker.run())

    # The end.

    async def _end(self, kafka: AIOKafkaConsumer) -> None:
        """Finish what is in hand, commit, leave the group; nothing here raises."""
        self._desk.take_back()
        await self._drain(0 if self._force.is_set() else self._options.drain_timeout)
        if kafka.assignment():
            await self._commit_in_time()
        self._desk.close()
        for task in self._workers.values():
            if not task.done():
                await asyncio.wait({task}, timeout=_ABANDON_SECONDS)
                task.cancel()
        await asyncio.gather(*self._workers.values(), return_exceptions=True)
        if self._rules.dead_letters is not None:
            await _within(_COMMIT_SECONDS, self._rules.dead_letters.close())
        await _within(_COMMIT_SECONDS, kafka.stop())
        self._meters.flush()
        self._meters.show({})


_ABANDON_SECONDS = 2.0


def _forget_result(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()


def _is_cancelled_by_us() -> bool:
    """Tell whether this task is to end; else it is the Kafka client that lost a future of its own.

    aiokafka cancels what waits for its coordinator when that goes, and lets the error out.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _within(seconds: float, ending: Any) -> None:
    try:
        async with asyncio.timeout(seconds):
            await ending
    except (TimeoutError, ClientError) as error:
        _log.warning("the Kafka client did not end in good order: %s", error or "no answer")
    except asyncio.CancelledError:
        if _is_cancelled_by_us():
            raise
        _log.warning("the Kafka client did not end in good order: it gave a request up")


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is not typed
    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:  # noqa: ARG002 - all are, always
        await self._runner.revoked()

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._runner.assigned(assigned)
