"""Hands claimed rows to the producer and passes its reports on."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from bridge.encoding.dead_letter import dead_letter_headers
from bridge.encoding.json import CannotEncode, record_headers
from bridge.encoding.sizes import record_size
from bridge.kafka.failures import FailureClass, classify
from bridge.kafka.producer import error_name
from bridge.lifecycle import ErrorCode
from bridge.message import Record, payload_of
from bridge.relay.batch import Ack, Batch, Fault, Letter, Refusal, Suspect, Unsent
from bridge.relay.target import NOWHERE, Target
from bridge.relay.vitals import Pulse
from bridge.routing import KeyChoice
from bridge.telemetry.names import SAMPLED, TRACEPARENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.message import ClaimedRow
    from bridge.relay.flight import Flight
    from bridge.relay.meter import Meter
    from bridge.relay.payloads import Payloads
    from bridge.relay.producers import Producers
    from bridge.relay.registration import Registration
    from bridge.relay.target import Aim
    from bridge.telemetry.sending import Sending, SendSpans

Report = Callable[[KafkaError | None, Message], None]
LastReport = Callable[[KafkaError | None, Message | None], None]

_QUEUE_FULL_WAIT = 0.05
_ALIVE_WAIT = 0.1
_LEADERLESS_WAIT = 5.0
"""Seconds until a row whose partition has no leader is tried again."""

_PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})  # noqa: SLF001 - librdkafka's local codes


class Publisher:
    """The thread that produces, batch by batch in id order; reports come in the producers' threads.

    Every row that enters leaves exactly one report in the flight's mailboxes: an Ack, a Refusal, a
    Fault (can never be sent, or waits for a leader) or Unsent (given back). A record refused
    together with others is sent again by the lone producer, because librdkafka fails a whole batch
    for one guilty record. `max_age`: seconds after its claim when a batch is handed to Kafka no
    more, since others may take it over before its records have expired. `spans` is None where
    traces are off.

    Order: once an ordered row fails or goes back, its lane is held in the flight, and later rows of
    it that come by here go back too, so that the next claim begins with the failed one.
    """

    def __init__(
        self,
        producers: Producers,
        *,
        payloads: Payloads,
        aim: Aim,
        flight: Flight,
        on_fatal: Callable[[str], None],
        max_age: float,
        registration: Registration,
        spans: SendSpans | None = None,
    ) -> None:
        self._producers = producers
        self._payloads = payloads
        self._aim = aim
        self._flight = flight
        self._on_fatal = on_fatal
        self._max_age = max_age
        self._registration = registration
        self._spans = spans
        self._giving_back = False
        self.meter: Meter | None = None
        """Measures what is handed to Kafka, where anybody asked for that."""
        self.pulse = Pulse()
        self._log = structlog.get_logger("bridge.relay.publisher")

    def run(self) -> None:
        """Produce what the claimer puts into the flight until a None arrives."""
        mailbox = self._flight.to_publish
        while True:
            self.pulse.rest()
            work = mailbox.get()
            if work is None:
                return
            self.pulse.beat()
            with self._producers.in_use():
                self._work_on(work)

    def _work_on(self, work: Batch | list[Suspect] | list[Letter]) -> None:
        if isinstance(work, Batch):
            self._publish(work)
            return
        for item in work:
            self.pulse.beat()
            if isinstance(item, Suspect):
                self._publish_alone(item)
            else:
                self._bury(item)

    def give_back(self) -> None:
        """From now on hand nothing more to Kafka: batches that wait are given back unsent."""
        self._giving_back = True

    def purge(self) -> None:
        """Drop what librdkafka has not sent yet; its rows are reported as surely unsent."""
        self._producers.purge()

    def _is_over(self, batch: Batch) -> bool:
        """Tell whether nothing more of this batch may be handed to Kafka.

        A relay without its heartbeat session waits: others may be about to take its claims over.
        """
        while not (self._giving_back or self._registration.alive.wait(_ALIVE_WAIT)):
            self.pulse.beat()
            if time.monotonic() - batch.claimed_at > self._max_age:
                break
        if self._giving_back or batch.claimed_at < self._registration.registered_at:
            return True
        age = time.monotonic() - batch.claimed_at
        if age <= self._max_age:
            return False
        self._log.warning(
            "rows waited too long for Kafka within their lease and are given back",
            rows=batch.open,
            waited_seconds=round(age, 1),
        )
        return True

    def _publish(self, batch: Batch) -> None:
        if self._spans is None:
            self._publish_rows(batch, None)
        else:
            with self._spans.follow(batch.claim_id, len(batch.rows)) as following:
                self._publish_rows(batch, following)

    # One function: it is the hot loop, where each call costs every row.
    def _publish_rows(  # noqa: PLR0912, PLR0915 - as above
        self, batch: Batch, following: Sending | None
    ) -> None:
        rows, batch.rows = batch.rows, ()
        flight = self._flight
        is_over = self._is_over(batch)
        if self.meter is not None and not is_over:
            batch.sending = self.meter.begin(rows)
        report = self._reporter(batch)
        destination = ""
        target, produce = NOWHERE, self._producers.main().produce
        targets: dict[str, Target] = {}
        for position, row in enumerate(rows):
            if is_over or self._giving_back:
                flight.hold_lanes(batch.lanes)
                flight.unsent.extend(Unsent(left[0], batch) for left in rows[position:])
                return
            if row[12] is not None and row[12] in flight.held_lanes:
                flight.unsent.append(Unsent(row[0], batch))
                continue
            try:
                if row[1] != destination:  # most often the same as the row before
                    destination = row[1]
                    target = targets.get(destination) or self._aim.at(destination, batch)
                    targets[destination] = target
                    produce = target.producer.produce
                if target.problem is not None:
                    self._fault(row[0], batch, target.problem_code, target.problem)
                    continue
                auto = target.key is KeyChoice.AUTO
                key = (row[3] or row[2]) if auto else _record_key(row, target.key)
                if target.leaderless and self._awaits_leader(row[0], key, target, batch):
                    continue
                if row[10] is not None:
                    self._publish_large(row, batch, target, rows[:position])
                    is_over = self._is_over(batch)  # that may have taken its time
                    continue
                value = row[8] if row[8] is not None else row[9]
                headers = record_headers(row)
                if (
                    value is not None
                    and len(value) > target.plain_bytes
                    and record_size(key, value, headers) > target.max_bytes
                ):
                    self._publish_doubtful(row, batch, target, rows[:position], 0)
                    continue
                delivered = report(row[0])
                if following is not None:
                    parent = headers.get(TRACEPARENT)
                    if parent is None or parent[-1:] in SAMPLED:
                        is_small = value is None or len(value) <= target.plain_bytes
                        delivered = following.record(
                            row, headers, target.topic, delivered, may_grow=is_small
                        )
                try:
                    produce(target.topic, value, key, on_delivery=delivered, headers=headers)
                except BufferError:
                    record = Record(target.topic, key, value, headers)
                    self._produce_when_possible(target.producer, record, delivered)
            except CannotEncode as error:
                self._fault(row[0], batch, ErrorCode.CANNOT_ENCODE, str(error))
            except KafkaException as error:
                self._refused_at_once(row[0], error.args[0], batch)
                if following is not None:
                    following.refused(row[0], error.args[0])

    def _reporter(self, batch: Batch) -> Callable[[int], Report]:
        """Return the factory of delivery callbacks for a batch; kept small, one runs per record."""
        acked = self._flight.acks.append
        refused = self._refused
        sending, now = batch.sending, time.monotonic

        def report(outbox_id: int) -> Report:
            def delivered(error: KafkaError | None, message: Message) -> None:
                if error is None:
                    if sending is not None:
                        sending.acked_at = now()
                    # A plain tuple is an Ack to its only reader, at half the cost.
                    acked((outbox_id, message.partition(), message.offset(), batch))  # type: ignore[arg-type]
                else:
                    refused(Refusal(outbox_id, error, alone=False, batch=batch))

            return delivered

        return report

    def _refused(self, refusal: Refusal) -> None:
        batch = refusal.batch
        self._flight.hold_lanes(batch.lanes_with(refusal.outbox_id))
        code = refusal.error.code()
        if code in _PURGED:
            self._flight.unsent.append(Unsent(refusal.outbox_id, batch, handed=True))
        elif classify(refusal.error).failure_class is FailureClass.FATAL:
            self._flight.unsent.append(Unsent(refusal.outbox_id, batch, handed=True))
            self._on_fatal(f"{error_name(refusal.error)}: {refusal.error.str()}")
        else:
            self._flight.refusals.append(refusal)

    def _refused_at_once(self, outbox_id: int, error: KafkaError, batch: Batch) -> None:
        """Report a record that `produce` itself refused, which was alone by nature."""
        self._refused(Refusal(outbox_id, error, alone=True, batch=batch))

    def _fault(self, outbox_id: int, batch: Batch, code: str, reason: str) -> None:
        self._flight.hold_lanes(batch.lanes_with(outbox_id))
        self._flight.faults.append(Fault(outbox_id, code, reason, batch))

    def _awaits_leader(self, outbox_id: int, key: str | None, target: Target, batch: Batch) -> bool:
        """Give a row back for a while whose partition has no leader; others of its topic go on."""
        partition = target.partition_of(key)
        if partition not in target.leaderless:
            return False
        self._flight.hold_lanes(batch.lanes_with(outbox_id))
        reason = f"partition {partition} of topic {target.topic} has no leader"
        self._flight.faults.append(
            Fault(outbox_id, ErrorCode.NO_LEADER, reason, batch, delay=_LEADERLESS_WAIT)
        )
        return True

    def _produce_when_possible(self, producer: Producer, record: Record, report: Report) -> None:
        """Wait while librdkafka's own queue is full; its thread empties it."""
        while True:
            try:
                producer.produce(
                    record.topic,
                    record.value,
                    record.key,
                    on_delivery=report,
                    headers=record.headers,
                )
            except BufferError:
                self.pulse.beat()
                self._producers.wait(_QUEUE_FULL_WAIT)
            else:
                return

    def _publish_doubtful(
        self,
        row: ClaimedRow,
        batch: Batch,
        target: Target,
        earlier: Sequence[ClaimedRow],
        reserved: int,
    ) -> None:
        """Send a record that may be over its topic's limit (unless compression helps) alone.

        An ordered one only when nothing of its key is on the way before it; else it goes back with
        what follows it, and the next claim of its lane begins with it.
        """
        lane = row[12]
        if lane is not None:
            self._flight.hold_lanes(frozenset((lane,)))
            is_first = self._flight.is_alone(lane) and not any(
                one[3] == row[3] and one[1] == row[1] for one in earlier
            )
            if not is_first:
                self._give_bytes(reserved)
                self._flight.unsent.append(Unsent(row[0], batch))
                return
        self._send_alone(row, batch, target, reserved)

    def _publish_large(
        self, row: ClaimedRow, batch: Batch, target: Target, earlier: Sequence[ClaimedRow]
    ) -> None:
        """Fetch a payload that was left in the database, within the byte budget, and produce it."""
        size = row[10] or 0
        if not self._reserve(size, batch):
            self._flight.hold_lanes(batch.lanes)
        else:
            fetched = self._payloads.fetch(row[0], batch.claim_id)
            if fetched is not None:
                key = _record_key(fetched, target.key)
                try:
                    headers = record_headers(fetched)
                except CannotEncode:
                    self._give_bytes(size)
                    raise
                value = payload_of(fetched)
                if record_size(key, value, headers) > target.max_bytes:
                    fetched = fetched._replace(lane=row[12])
                    self._publish_doubtful(fetched, batch, target, earlier, size)
                else:
                    record = Record(target.topic, key, value, headers)
                    report = self._last_report(row[0], batch, size, alone=False)
                    report = self._traced(fetched, batch, record, target, report)
                    self._produce_reported(target.producer, record, report)
                return
            self._give_bytes(size)
        self._flight.unsent.append(Unsent(row[0], batch))

    def _publish_alone(self, suspect: Suspect) -> None:
        outbox_id, batch = suspect
        row = None if self._is_over(batch) else self._payloads.fetch(outbox_id, batch.claim_id)
        if row is not None:
            size = len(payload_of(row) or b"")
            if self._reserve(size, batch):
                target = self._aim.at(row[1], batch)
                self._send_alone(row, batch, target, size)
                return
        self._flight.unsent.append(Unsent(outbox_id, batch))

    def _send_alone(self, row: ClaimedRow, batch: Batch, target: Target, reserved: int) -> None:
        value = payload_of(row)
        try:
            headers = record_headers(row)
        except CannotEncode as error:
            self._give_bytes(reserved)
            self._fault(row[0], batch, ErrorCode.CANNOT_ENCODE, str(error))
            return
        record = Record(target.topic, _record_key(row, target.key), value, headers)
        report = self._last_report(row[0], batch, reserved, alone=True)
        report = self._traced(row, batch, record, target, report)
        self._produce_reported(self._producers.lone(), record, report)

    def _traced(
        self, row: ClaimedRow, batch: Batch, record: Record, target: Target, report: LastReport
    ) -> LastReport:
        """Let a span follow a record that goes apart from its batch; returns its callback."""
        parent: Any = record.headers.get(TRACEPARENT)
        if self._spans is None or not (parent is None or parent[-1:] in SAMPLED):
            return report
        is_small = record.value is None or len(record.value) <= target.plain_bytes
        with self._spans.follow(batch.claim_id, 1) as following:
            return following.record(row, record.headers, record.topic, report, may_grow=is_small)

    def _produce_reported(
        self,
        producer: Producer,
        record: Record,
        report: LastReport,
    ) -> None:
        """Produce one record; what `produce` itself refuses is reported like everything else."""
        try:
            self._produce_when_possible(producer, record, report)
        except KafkaException as error:
            report(error.args[0], None)

    def _last_report(
        self, outbox_id: int, batch: Batch, reserved: int, *, alone: bool
    ) -> LastReport:
        """Return the callback of a record for which bytes were reserved: they come back with it."""
        acks, refused, give_bytes = self._flight.acks, self._refused, self._give_bytes
        sending = batch.sending

        def delivered(error: KafkaError | None, message: Message | None) -> None:
            give_bytes(reserved)
            if error is None and message is not None:
                if sending is not None:
                    sending.acked_at = time.monotonic()
                partition, offset = message.partition(), message.offset()
                acks.append(Ack(outbox_id, partition, offset, batch))  # type: ignore[arg-type]  # set once delivered
            elif error is not None:
                # Without message it was `produce` that refused the record, alone by nature.
                refused(Refusal(outbox_id, error, alone or message is None, batch))

        return delivered

    def _bury(self, letter: Letter) -> None:
        """Send the record of a row that ends FAILED to its route's dead-letter topic."""
        outbox_id, code, reason, batch = letter
        faults, unsent = self._flight.faults, self._flight.unsent
        row = None if self._is_over(batch) else self._payloads.fetch(outbox_id, batch.claim_id)
        if row is None or not self._reserve(size := len(payload_of(row) or b""), batch):
            unsent.append(Unsent(outbox_id, batch, handed=True))
            return
        target = self._aim.at(row[1], batch)

        def buried(error: KafkaError | None, _message: Message | None) -> None:
            self._give_bytes(size)
            if error is None:
                faults.append(Fault(outbox_id, code, reason, batch, buried=True))
            elif classify(error).failure_class is FailureClass.MESSAGE:
                why = f"{reason} (dead-letter topic {target.dead_letter}: {error.str()})"
                faults.append(Fault(outbox_id, code, why, batch, buried=True))
            else:
                unsent.append(Unsent(outbox_id, batch, handed=True))  # fails again, is buried then

        headers = dead_letter_headers(
            row, code=code, reason=reason, topic=target.topic, failed_at=datetime.now(UTC)
        )
        value = payload_of(row)
        record = Record(target.dead_letter or "", _record_key(row, target.key), value, headers)
        report = self._traced(row, batch, record, target, buried)
        self._produce_reported(self._producers.lone(), record, report)

    def _reserve(self, size: int, batch: Batch) -> bool:
        """Wait for room in the byte budget; False when the batch is over meanwhile."""
        while not self._flight.take_bytes(size, _QUEUE_FULL_WAIT * 4):
            self.pulse.beat()
            if self._is_over(batch):
                return False
        return True

    def _give_bytes(self, size: int) -> None:
        if size:
            self._flight.give_bytes(size)


def _record_key(row: ClaimedRow, choice: KeyChoice) -> str | None:
    if choice is KeyChoice.AUTO:
        return row[3] or row[2]
    return row[2] if choice is KeyChoice.MESSAGE_KEY else row[3]
