"""Collects the outcomes of what was published and has them written."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from bridge.database.session import BUSY, PASSING, ConnectionLost
from bridge.kafka.failures import FailureClass, classify
from bridge.kafka.producer import error_name
from bridge.lifecycle import ErrorCode
from bridge.message import MAX_ERROR_CODE, MAX_ERROR_MESSAGE
from bridge.relay.batch import Ack, Batch, Letter, Refusal, Suspect, Unsent
from bridge.relay.settlement import Failed, Failure, Settlement
from bridge.relay.vitals import Pulse
from bridge.telemetry.context import message_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from bridge.relay.flight import Flight
    from bridge.relay.meter import Meter
    from bridge.relay.tally import RelayReport

Item = TypeVar("Item")

_IDLE = 0.2
_HELD_WAIT = 0.5
"""Seconds until rows that somebody else had locked are tried again."""
_LOGGED_IDS = 20


@dataclass(slots=True)
class Held:
    """Outcomes of rows that somebody else has locked; true where there are any."""

    acks: list[Ack] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    unsent: list[Unsent] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.acks or self.failures or self.unsent)


class Settler:
    """The stage that settles: one thread, one connection.

    Outcomes are collected for a few milliseconds and written together, in id order. None is
    dropped: it stays here until the database has it, through lost connections and through rows that
    somebody else has locked. `on_success` hears the destination of acknowledged records,
    `on_failure` destination, code and reason of refused ones that may say more about the
    destination than about the record, `on_doubt` where a batch was refused for some record in it.
    `meter` measures outcomes.
    """

    def __init__(
        self,
        settlement: Settlement,
        flight: Flight,
        report: RelayReport,
        reopen: Callable[[threading.Event], bool],
        *,
        interval: float,
        rows: int,
        on_success: Callable[[str], None] = lambda _: None,
        on_failure: Callable[[str, str, str], None] = lambda *_: None,
        on_doubt: Callable[[str], None] = lambda _: None,
        meter: Meter | None = None,
    ) -> None:
        self._settlement = settlement
        self._flight = flight
        self._report = report
        self._reopen = reopen
        self._interval = interval
        self._rows = rows
        self._on_success = on_success
        self._on_failure = on_failure
        self._on_doubt = on_doubt
        self._meter = meter
        self._held = Held()
        self._held_until = 0.0
        self._log = structlog.get_logger("bridge.relay.settler")
        self.pulse = Pulse()
        self.draining = threading.Event()
        self.give_up = threading.Event()

    def run(self) -> None:
        """Settle until `draining` is set and nothing is in flight, or until `give_up` is set."""
        while not self.give_up.is_set():
            self.pulse.beat()
            if not self._flight.wait_for_work(_IDLE):
                if self.draining.is_set():
                    return
                continue
            self.give_up.wait(self._interval)
            self._settle()

    def _settle(self) -> None:
        flight = self._flight
        acks = _take(flight.acks, self._rows)
        failures = [
            Failure(
                fault.outbox_id,
                fault.code,
                fault.reason[:MAX_ERROR_MESSAGE],
                final=fault.delay is None,
                batch=fault.batch,
                delay=fault.delay,
                buried=fault.buried,
            )
            for fault in _take(flight.faults)
        ]
        unsent = _take(flight.unsent)
        refusals = _take(flight.refusals)
        if self._meter is not None and refusals:
            self._meter.refused(refusals)
        self._judge(refusals, failures, unsent)
        self._note_reports(acks, failures, unsent)
        if self._held and time.monotonic() >= self._held_until:
            acks += self._held.acks
            failures += self._held.failures
            unsent += self._held.unsent
            self._held = Held()
        if acks:
            acks.sort(key=_outbox_id)
            self._insist(lambda: self._settle_acks(acks))
        if failures:
            self._insist(lambda: self._settle_failures(failures))
        if unsent:
            self._insist(lambda: self._release(unsent))

    def _note_reports(
        self, acks: Sequence[Ack], failures: Sequence[Failure], unsent: Sequence[Unsent]
    ) -> None:
        """Tell the flight of which rows Kafka's word has come, and the breakers of successes."""
        reported = [
            *((ack[0], ack[3]) for ack in acks),
            *((failure.outbox_id, failure.batch) for failure in failures),
            *((item.outbox_id, item.batch) for item in unsent),
        ]
        if not reported:
            return
        self._flight.report(reported)
        if self._meter is not None:
            others = {*(one.batch for one in failures), *(one.batch for one in unsent)}
            self._meter.reported(acks, others)
        for batch in {ack[3] for ack in acks}:
            names = [batch.destination] if batch.destination is not None else batch.destinations
            for name in names:
                self._on_success(name)

    def _settle_acks(self, acks: Sequence[Ack]) -> None:
        held: Sequence[Ack] = ()
        claims_deleted = True
        pairs = [(ack[0], ack[3]) for ack in acks]
        try:
            settled = self._settlement.mark_sent(acks, finished_batches(pairs))
        except BUSY:
            settled, held = self._settlement.mark_free_sent(acks)
            claims_deleted = False
        waiting = {ack[0] for ack in held}
        written = [ack for ack in acks if ack[0] not in waiting] if held else acks
        lost = self._settlement.find_lost(written) if settled < len(written) else []
        # Only now, when no statement can fail any more, may the outcomes be counted out.
        if held:
            # Somebody's open transaction: the others are written, these wait for it.
            self._hold().acks += held
            pairs = [(ack[0], ack[3]) for ack in written]
        self._report.sent += settled
        self._lost(lost)
        self._leave(pairs, claims_deleted=claims_deleted)

    def _settle_failures(self, failures: Sequence[Failure]) -> None:
        result = self._settlement.mark_failed(failures)
        self._report.retried += result.retried
        self._report.failed += result.failed
        self._report.released += result.delayed
        if result.lost:
            self._lost(result.lost)
        if result.held:
            self._hold().failures += result.held
        if result.to_bury:
            self._flight.to_publish.put(
                [Letter(one.outbox_id, one.code, one.reason, one.batch) for one in result.to_bury]
            )
        still_here = {one.outbox_id for one in (*result.held, *result.to_bury)}
        self._log_failures(result)
        self._leave([(f.outbox_id, f.batch) for f in failures if f.outbox_id not in still_here])

    def _log_failures(self, result: Failed) -> None:
        first = result.first
        if first is not None:
            self._log.warning(
                "not delivered",
                rows=result.retried + result.failed,
                failed=result.failed,
                code=first.code,
                reason=first.reason,
                **message_fields(first.outbox_id, first.message_key, first.traceparent),
            )

    def _release(self, unsent: Sequence[Unsent]) -> None:
        held = set(self._settlement.release(unsent))
        if held:
            self._hold().unsent += held
        released = [item for item in unsent if item not in held]
        self._report.released += len(released)
        self._leave([(item.outbox_id, item.batch) for item in released])

    def _hold(self) -> Held:
        """Return where to keep rows that somebody else has locked, until they are tried again."""
        self._held_until = time.monotonic() + _HELD_WAIT
        return self._held

    def _judge(
        self, refusals: Iterable[Refusal], failures: list[Failure], unsent: list[Unsent]
    ) -> None:
        """Sort refusals: charged ones fail, others go back, and the doubtful are sent once more.

        A record refused beside others is sent alone, to find the guilty one. Of ordered rows that
        is only the first of each lane; the others go back, so that none passes a guilty one.
        """
        suspects: list[Suspect] = []
        lanes: set[int] = set()
        for refusal in sorted(refusals, key=_outbox_id):
            verdict = classify(refusal.error)
            code = error_name(refusal.error)
            if verdict.failure_class is FailureClass.MESSAGE and not refusal.alone:
                self._on_doubt(refusal.batch.where(refusal.outbox_id))
                lane = refusal.batch.lane_of.get(refusal.outbox_id)
                if lane is None or lane not in lanes:
                    suspects.append(Suspect(refusal.outbox_id, refusal.batch))
                else:
                    unsent.append(Unsent(refusal.outbox_id, refusal.batch, handed=True))
                if lane is not None:
                    lanes.add(lane)
                continue
            if verdict.failure_class is not FailureClass.MESSAGE:
                self._on_failure(refusal.batch.where(refusal.outbox_id), code, refusal.error.str())
            if not verdict.charged:
                unsent.append(Unsent(refusal.outbox_id, refusal.batch, handed=True))
                continue
            if code == "MSG_SIZE_TOO_LARGE":
                code = ErrorCode.MESSAGE_TOO_LARGE
            failures.append(
                Failure(
                    refusal.outbox_id,
                    code[:MAX_ERROR_CODE],
                    refusal.error.str()[:MAX_ERROR_MESSAGE],
                    verdict.failure_class is FailureClass.MESSAGE,
                    refusal.batch,
                )
            )
        if suspects:
            self._flight.to_publish.put(suspects)

    def _insist(self, work: Callable[[], None]) -> None:
        """Do one piece of work until the database has it."""
        while not self.give_up.is_set():
            self.pulse.beat()
            try:
                work()
            except ConnectionLost:
                self._reopen(self.give_up)
            except BUSY:
                self.give_up.wait(self._interval)
            except PASSING:
                self.give_up.wait(_HELD_WAIT)
            else:
                return

    def _leave(self, items: Sequence[tuple[int, Batch]], *, claims_deleted: bool = False) -> None:
        """Count rows out of their batches; a batch without open rows is finished."""
        if not claims_deleted:
            finished = finished_batches(items)
            if finished:
                self._insist(lambda: self._settlement.delete_claims(finished))
        self._flight.leave(items)

    def _lost(self, outbox_ids: list[int]) -> None:
        if outbox_ids:
            self._report.lost_leases += len(outbox_ids)
            self._log.warning(
                "lost leases: others claimed, edited or cancelled the rows meanwhile",
                rows=len(outbox_ids),
                outbox_ids=outbox_ids[:_LOGGED_IDS],
            )


def finished_batches(items: Sequence[tuple[int, Batch]]) -> list[Batch]:
    """Return the batches of which these are the last open rows."""
    return [batch for batch, rows in Counter(b for _, b in items).items() if batch.open == rows]


def _take(mailbox: deque[Item], most: int | None = None) -> list[Item]:
    """Take what is in a mailbox now, at most `most` items; appends may go on meanwhile."""
    count = len(mailbox) if most is None else min(most, len(mailbox))
    return [mailbox.popleft() for _ in range(count)]


def _outbox_id(item: Any) -> int:
    outbox_id: int = item[0]
    return outbox_id
