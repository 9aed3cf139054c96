"""Collects the outcomes of what was published and has them written."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from bridge.database.session import BUSY, PASSING, ConnectionLost
from bridge.kafka.failures import FailureClass, classify
from bridge.kafka.producer import error_name
from bridge.lifecycle import ErrorCode
from bridge.message import MAX_ERROR_CODE, MAX_ERROR_MESSAGE
from bridge.relay.batch import Ack, Batch, Refusal, Suspect, Unsent
from bridge.relay.settlement import Failure, Settlement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from bridge.relay.flight import Flight
    from bridge.relay.tally import RelayReport

Item = TypeVar("Item")

_IDLE = 0.2
_HELD_WAIT = 0.5
"""Seconds until rows that somebody else had locked are tried again."""
_LOGGED_IDS = 20


class Settler:
    """The stage that settles: one thread, one connection.

    Outcomes are collected for a few milliseconds and written together, in id order. None is
    dropped: it stays here until the database has it, through lost connections and through rows that
    somebody else has locked.
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
    ) -> None:
        self._settlement = settlement
        self._flight = flight
        self._report = report
        self._reopen = reopen
        self._interval = interval
        self._rows = rows
        self._held_acks: list[Ack] = []
        self._held_failures: list[Failure] = []
        self._held_until = 0.0
        self._log = structlog.get_logger("bridge.relay.settler")
        self.draining = threading.Event()
        self.give_up = threading.Event()

    def run(self) -> None:
        """Settle until `draining` is set and nothing is in flight, or until `give_up` is set."""
        while not self.give_up.is_set():
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
            *(
                Failure(
                    fault[0], fault[1], fault[2][:MAX_ERROR_MESSAGE], final=True, batch=fault[3]
                )
                for fault in _take(flight.faults)
            ),
            *self._judge(_take(flight.refusals)),
        ]
        unsent = _take(flight.unsent)
        if (self._held_acks or self._held_failures) and time.monotonic() >= self._held_until:
            acks += self._held_acks
            failures += self._held_failures
            self._held_acks, self._held_failures = [], []
        if acks:
            acks.sort(key=_outbox_id)
            self._insist(lambda: self._settle_acks(acks))
        if failures:
            self._insist(lambda: self._settle_failures(failures))
        if unsent:
            self._insist(lambda: self._release(unsent))

    def _settle_acks(self, acks: Sequence[Ack]) -> None:
        held: Sequence[Ack] = ()
        claims_deleted = True
        try:
            settled = self._settlement.mark_sent(acks, _finished(acks))
        except BUSY:
            settled, held = self._settlement.mark_free_sent(acks)
            claims_deleted = False
        waiting = {ack[0] for ack in held}
        written = [ack for ack in acks if ack[0] not in waiting] if held else acks
        lost = self._settlement.find_lost(written) if settled < len(written) else []
        # Only now, when no statement can fail any more, may the outcomes be counted out.
        if held:
            # Somebody's open transaction: the others are written, these wait for it.
            self._held_acks += held
            self._held_until = time.monotonic() + _HELD_WAIT
        self._report.sent += settled
        self._lost(lost)
        self._leave((ack[3] for ack in written), claims_deleted=claims_deleted)

    def _settle_failures(self, failures: Sequence[Failure]) -> None:
        result = self._settlement.mark_failed(failures)
        self._report.retried += result.retried
        self._report.failed += result.failed
        if result.lost:
            self._lost(result.lost)
        if result.held:
            self._held_failures += result.held
            self._held_until = time.monotonic() + _HELD_WAIT
        held = {failure.outbox_id for failure in result.held}
        for failure in failures[:1] if result.retried or result.failed else ():
            self._log.warning(
                "not delivered",
                rows=result.retried + result.failed,
                failed=result.failed,
                first_outbox_id=failure.outbox_id,
                code=failure.code,
                reason=failure.reason,
            )
        self._leave(f.batch for f in failures if f.outbox_id not in held)

    def _release(self, unsent: Sequence[Unsent]) -> None:
        held = set(self._settlement.release(unsent))
        self._flight.unsent.extend(held)  # somebody's open transaction: tried again next time
        released = [item for item in unsent if item not in held]
        self._report.released += len(released)
        self._leave(item.batch for item in released)

    def _judge(self, refusals: Iterable[Refusal]) -> list[Failure]:
        """Turn refusals into failures; records refused beside others are sent again, alone."""
        failures: list[Failure] = []
        suspects: list[Suspect] = []
        for refusal in refusals:
            of_message = classify(refusal.error) is FailureClass.MESSAGE
            if of_message and not refusal.alone:
                suspects.append(Suspect(refusal.outbox_id, refusal.batch))
                continue
            code = error_name(refusal.error)
            if code == "MSG_SIZE_TOO_LARGE":
                code = ErrorCode.MESSAGE_TOO_LARGE
            reason = refusal.error.str()[:MAX_ERROR_MESSAGE]
            failures.append(
                Failure(refusal.outbox_id, code[:MAX_ERROR_CODE], reason, of_message, refusal.batch)
            )
        if suspects:
            suspects.sort(key=_outbox_id)
            self._flight.to_publish.put(suspects)
        return failures

    def _insist(self, work: Callable[[], None]) -> None:
        """Do one piece of work until the database has it."""
        while not self.give_up.is_set():
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

    def _leave(self, batches: Iterable[Batch], *, claims_deleted: bool = False) -> None:
        """Count rows out of their batches; a batch without open rows is finished."""
        counts = Counter(batches)
        finished = []
        for batch, rows in counts.items():
            batch.open -= rows
            if batch.open == 0:
                finished.append(batch)
        if finished and not claims_deleted:
            self._insist(lambda: self._settlement.delete_claims(finished))
        self._flight.leave(counts.total(), finished)

    def _lost(self, outbox_ids: list[int]) -> None:
        if outbox_ids:
            self._report.lost_leases += len(outbox_ids)
            self._log.warning(
                "lost leases: others claimed, edited or cancelled the rows meanwhile",
                rows=len(outbox_ids),
                outbox_ids=outbox_ids[:_LOGGED_IDS],
            )


def _finished(acks: Sequence[Ack]) -> list[Batch]:
    """Return the batches of which these acks settle the last open rows."""
    return [batch for batch, rows in Counter(ack[3] for ack in acks).items() if batch.open == rows]


def _take(mailbox: deque[Item], most: int | None = None) -> list[Item]:
    """Take what is in a mailbox now, at most `most` items; appends may go on meanwhile."""
    count = len(mailbox) if most is None else min(most, len(mailbox))
    return [mailbox.popleft() for _ in range(count)]


def _outbox_id(item: Any) -> int:
    outbox_id: int = item[0]
    return outbox_id
