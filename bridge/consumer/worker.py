"""One worker: takes jobs from the desk, has them done, and decides about those that fail."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiokafka.errors import KafkaError

from bridge.consumer.database import InboxError, is_locked, is_transient
from bridge.consumer.inbox import VanishedError
from bridge.consumer.outcomes import (
    HANDLER_FAILED,
    KEY_REUSED,
    NO_HANDLER,
    UNDECODABLE,
    Fate,
    Outcome,
    RejectError,
    RetryLaterError,
    RetryPolicy,
)
from bridge.consumer.received import Received, UndecodableError, read_record
from bridge.consumer.steps import Item
from bridge.consumer.threads import AbandonedError
from bridge.telemetry.tracing import error_type

if TYPE_CHECKING:
    from bridge.consumer.dead_letters import DeadLetters
    from bridge.consumer.desk import Desk, Job, Lane
    from bridge.consumer.handlers import Handlers
    from bridge.consumer.spans import Spans
    from bridge.consumer.watch import Watch
    from bridge.consumer.work import Work
    from bridge.telemetry.tracing import Processing

_log = logging.getLogger("bridge.consumer")

_SHORT = RetryPolicy(base=0.05, cap=1.0)
"""Waits after what is nobody's fault: a deadlock, a lost session."""
_PATIENT = RetryPolicy(base=0.05, cap=30.0)
"""Waits for what a person may have to put right: a dead-letter topic that takes nothing."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What all workers share.

    `locked` are the waits of a key that another session holds; `batch` is how many messages one
    transaction takes at most, `linger` how many seconds one waits for company.
    """

    handlers: Handlers
    retry: RetryPolicy
    locked: RetryPolicy
    dead_letters: DeadLetters | None
    dead_letter_unhandled: bool
    batch: int
    linger: float


class Worker:
    """A task that works on one lane at a time, or on one batch of lanes."""

    def __init__(self, rules: Rules, desk: Desk, watch: Watch, spans: Spans, work: Work) -> None:
        self._rules = rules
        self._desk = desk
        self._watch = watch
        self._spans = spans
        self._work = work
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_abandoned = False

    async def run(self) -> None:
        """Work until the desk is closed."""
        try:
            while not self._is_abandoned and (
                jobs := await self._desk.take(self._rules.batch, self._rules.linger)
            ):
                self._idle.clear()
                wait = 0.0
                try:
                    wait = await (self._one(jobs[0]) if len(jobs) == 1 else self._batch(jobs))
                finally:
                    for lane in dict.fromkeys(job.lane for job in jobs):
                        self._desk.release(lane, wait)
                    self._idle.set()
        finally:
            await self._work.close()

    async def wait_until_idle(self) -> None:
        """Wait until it has nothing in hand."""
        await self._idle.wait()

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing in hand."""
        return self._idle.is_set()

    def abandon(self) -> None:
        """Take nothing more, and leave what runs in a thread to itself; its task is cancelled."""
        self._is_abandoned = True
        self._work.abandon()

    # One message; what these return is how many seconds its lane has to wait.

    async def _one(self, job: Job) -> float:
        job.tries += 1
        try:
            item = self._read(job)
        except UndecodableError as error:
            return await self._bury(job, UNDECODABLE, str(error))
        if item is not None:
            with self._spans.one(item.received) as span:
                return await self._handle(job, item, span)
        if self._rules.dead_letter_unhandled:
            return await self._bury(job, NO_HANDLER, "no handler is registered for its type")
        self._finish(job, None, Outcome(Fate.UNHANDLED))
        return 0.0

    async def _handle(self, job: Job, item: Item, span: Processing) -> float:
        try:
            outcome = await self._work.one(item)
        except RejectError as error:
            span.fail(error.code, str(error))
            return await self._bury(job, error.code, str(error))
        except RetryLaterError as error:
            span.fail(error_type(error), str(error))
            return await self._later(job, item.received, error)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises
            span.fail(error_type(error), _describe(error))
            return await self._failed(job, item.received, error)
        if outcome.fate is Fate.CONFLICT:
            span.fail(KEY_REUSED)
            self._watch.conflicted(item.received.topic)
            return await self._bury(job, KEY_REUSED, _reused(item.received))
        if outcome.fate is Fate.DUPLICATE:
            span.mark_duplicate()
        self._finish(job, item.received, outcome)
        return 0.0

    def _read(self, job: Job) -> Item | None:
        """Return the message with its handler, None without one; raises UndecodableError."""
        received = read_record(job.record, job.tries)
        handler = self._rules.handlers.find(received.event_type)
        if handler is None:
            return None
        return Item(received, handler, handler.payload(received))

    def _finish(self, job: Job, received: Received | None, outcome: Outcome) -> None:
        self._desk.finish(job)
        self._watch.settled(job.record.topic, received, outcome.fate)

    async def _later(self, job: Job, received: Received, error: RetryLaterError) -> float:
        if error.charged:
            return await self._charge(job, received, error, error.after)
        job.waits += 1
        self._watch.retried(received.topic, charged=False)
        return error.after if error.after is not None else self._rules.retry.delay(job.waits)

    async def _failed(self, job: Job, received: Received, error: Exception) -> float:
        lost = self._work.drop_lost(error)
        blameless = isinstance(error, InboxError | VanishedError | AbandonedError)
        if lost or blameless or is_transient(error):
            job.waits += 1
            job.losses += 1
            # A message with which the database is lost again and again may be what breaks it.
            if blameless or job.losses <= _FREE_LOSSES:
                self._watch.retried(received.topic, charged=False)
                level = (
                    logging.ERROR if isinstance(error, InboxError) and not lost else logging.INFO
                )
                _log.log(
                    level, "%s: %s; tried again", received.place, error, extra=_extra(received)
                )
                return self._pause(error, lost=lost).delay(job.waits)
        return await self._charge(job, received, error, None)

    def _pause(self, error: Exception, *, lost: bool) -> RetryPolicy:
        """Return the waits after what is not the message's fault."""
        if is_locked(error):
            return self._rules.locked
        return _SHORT if lost or is_transient(error) else _PATIENT

    async def _charge(
        self, job: Job, received: Received, error: Exception, after: float | None
    ) -> float:
        job.failures += 1
        self._watch.retried(received.topic, charged=True)
        reason = _describe(error)
        if job.failures >= self._rules.retry.attempts:
            return await self._bury(job, HANDLER_FAILED, reason, error)
        wait = self._rules.retry.delay(job.failures) if after is None else after
        _log.warning(
            "%s failed at attempt %d of %d, again in %.1f s: %s",
            received.place,
            job.failures,
            self._rules.retry.attempts,
            wait,
            reason,
            extra=_extra(received),
            exc_info=error,
        )
        return wait

    async def _bury(
        self, job: Job, code: str, reason: str, error: BaseException | None = None
    ) -> float:
        """Send a message to the dead-letter topic; without one, hold its key and try again."""
        record = job.record
        place = f"{record.topic}/{record.partition}@{record.offset}"
        if self._rules.dead_letters is None:
            job.waits += 1
            self._watch.blocked(record.topic, code)
            _log.error(
                "%s cannot be handled and holds its key: %s: %s. Put the cause right, or give the "
                "consumer a dead_letter_topic",
                place,
                code,
                reason,
                exc_info=error,
            )
            return self._rules.retry.delay(max(job.waits, job.failures))
        try:
            await self._rules.dead_letters.send(
                record, code=code, reason=reason, attempts=max(1, job.failures)
            )
        except KafkaError as refused:
            job.waits += 1
            _log.error(
                "%s could not be sent to the dead-letter topic %s: %s; tried again",
                place,
                self._rules.dead_letters.topic,
                refused,
            )
            return _PATIENT.delay(job.waits)
        self._desk.finish(job)
        self._watch.dead_lettered(record.topic, code)
        _log.error(
            "%s sent to the dead-letter topic %s: %s: %s",
            place,
            self._rules.dead_letters.topic,
            code,
            reason,
            exc_info=error,
        )
        return 0.0

    # Many messages in one transaction.

    async def _batch(self, jobs: list[Job]) -> float:
        entries = self._choose(jobs)
        items = [item for _, item in entries if item is not None]
        try:
            with self._spans.many([item.received for item in items]):
                outcomes = iter(await self._work.many(items) if items else ())
        except Exception as error:  # noqa: BLE001 - whatever a handler raises
            return self._batch_failed(entries, error)
        held: set[Lane] = set()
        for job, item in entries:
            outcome = next(outcomes) if item is not None else Outcome(Fate.UNHANDLED)
            if job.lane in held:
                continue  # comes again, and is absorbed
            if outcome.fate is not Fate.CONFLICT:
                self._finish(job, None if item is None else item.received, outcome)
            elif item is not None:
                self._watch.conflicted(item.received.topic)
                if await self._bury(job, KEY_REUSED, _reused(item.received)):
                    job.alone = True
                    held.add(job.lane)
        return 0.0

    def _choose(self, jobs: list[Job]) -> list[tuple[Job, Item | None]]:
        """Return what can share a transaction, of each lane the first ones; None: no handler."""
        entries: list[tuple[Job, Item | None]] = []
        cut: set[Lane] = set()
        kind: bool | None = None
        for job in jobs:
            if job.lane in cut:
                continue
            job.tries += 1
            try:
                item = self._read(job)
            except UndecodableError:
                job.alone = True
                cut.add(job.lane)
                continue
            if item is None and not self._rules.dead_letter_unhandled:
                entries.append((job, None))
                continue
            if item is None or not item.handler.in_transaction:
                job.alone = True
                cut.add(job.lane)
                continue
            kind = item.handler.is_async if kind is None else kind
            if item.handler.is_async is kind:
                entries.append((job, item))
            else:
                cut.add(job.lane)
        return entries

    def _batch_failed(self, entries: list[tuple[Job, Item | None]], error: Exception) -> float:
        lost = self._work.drop_lost(error)
        if lost or isinstance(error, InboxError | VanishedError | AbandonedError):
            _log.info("a batch of %d failed: %s; tried again", len(entries), error)
            return self._pause(error, lost=lost).delay(1)
        # Each alone: so it shows whose fault it was, and the others are not charged.
        for job, _ in entries:
            job.alone = True
        _log.info(
            "a batch of %d failed, its messages are tried one by one: %s",
            len(entries),
            _describe(error),
        )
        return 0.0


_FREE_LOSSES = 6


def _describe(error: BaseException) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return "the handler took longer than handler_timeout"
    return f"{type(error).__name__}: {error}"


def _reused(received: Received) -> str:
    return (
        f"message key {received.message_key!r} was processed before with other content (event type "
        "or payload)"
    )


def _extra(received: Received) -> dict[str, object]:
    return {"message_key": received.message_key, "outbox_id": received.outbox_id}
