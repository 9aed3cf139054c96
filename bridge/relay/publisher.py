"""Hands claimed rows to the producer and passes its reports on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from bridge.database.session import PASSING, ConnectionLost, Session
from bridge.encoding.json import CannotEncode, record_headers
from bridge.kafka.failures import FailureClass, classify
from bridge.lifecycle import ErrorCode
from bridge.message import Record
from bridge.relay.batch import Ack, Batch, Fault, Refusal, Suspect, Unsent
from bridge.routing import KeyChoice, Route, Router

if TYPE_CHECKING:
    from bridge.message import ClaimedRow
    from bridge.relay.flight import Flight

Report = Callable[[KafkaError | None, Message], None]

_QUEUE_FULL_WAIT = 0.05
_POLL = 0.1
_NOWHERE = Route(topic="", key=KeyChoice.AUTO)
_REFUSED_WAIT = 1.0


class Publisher:
    """Two threads: one produces batch by batch in id order, one serves librdkafka's reports.

    Every row that enters leaves exactly one report in the flight's mailboxes: an Ack, a Refusal, a
    Fault (can never be sent) or Unsent (given back). A record refused together with others is sent
    again by `lone_producer`, whose batches hold one record, because librdkafka fails a whole batch
    for one guilty record. `max_age`: seconds after its claim when a batch is handed to Kafka no
    more, since others may take it over before its records have expired.
    """

    def __init__(
        self,
        producer: Producer,
        *,
        lone_producer: Callable[[], Producer],
        session: Session,
        router: Router,
        flight: Flight,
        on_fatal: Callable[[str], None],
        max_age: float,
    ) -> None:
        self._producer = producer
        self._make_lone_producer = lone_producer
        self._lone_producer: Producer | None = None
        self._session = session
        self._router = router
        self._flight = flight
        self._on_fatal = on_fatal
        self._max_age = max_age
        self._giving_back = False
        self._done = threading.Event()
        self._log = structlog.get_logger("bridge.relay.publisher")

    def run(self) -> None:
        """Produce what the claimer puts into the flight until a None arrives."""
        mailbox = self._flight.to_publish
        while True:
            work = mailbox.get()
            if work is None:
                return
            if isinstance(work, Batch):
                self._publish(work)
            else:
                self._publish_alone(work)

    def poll(self) -> None:
        """Serve delivery reports until `finish`; callbacks run in this thread."""
        while not self._done.is_set():
            self._producer.poll(_POLL)
            if self._lone_producer is not None:
                self._lone_producer.poll(0)

    def give_back(self) -> None:
        """From now on hand nothing more to Kafka: batches that wait are given back unsent."""
        self._giving_back = True

    def purge(self) -> None:
        """Drop what librdkafka has not sent yet; its rows are reported as surely unsent."""
        self._producer.purge(in_queue=True, in_flight=False, blocking=False)
        if self._lone_producer is not None:
            self._lone_producer.purge(in_queue=True, in_flight=False, blocking=False)

    def finish(self) -> None:
        """End the poll thread, after everything was settled."""
        self._done.set()

    def _is_over(self, batch: Batch) -> bool:
        """Tell whether nothing more of this batch may be handed to Kafka."""
        if self._giving_back or not batch.lanes.isdisjoint(self._flight.held_lanes):
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
        rows, batch.rows = batch.rows, ()
        is_over = self._is_over(batch)
        produce = self._producer.produce
        route = self._router.route
        report = self._reporter(batch)
        destination = ""
        target = _NOWHERE
        for position, row in enumerate(rows):
            if is_over or self._giving_back:
                self._flight.hold_lanes(batch.lanes)
                self._flight.unsent.extend(Unsent(left[0], batch) for left in rows[position:])
                return
            try:
                if row[1] != destination:  # most often the same as the row before
                    destination = row[1]
                    target = route(destination)
                if target.problem is not None:
                    self._fault(row, batch, ErrorCode.INVALID_TOPIC, target.problem)
                    continue
                if row[10] is not None:
                    self._publish_large(row, batch)
                    is_over = self._is_over(batch)  # that may have taken its time
                    continue
                auto = target.key is KeyChoice.AUTO
                key = (row[3] or row[2]) if auto else _record_key(row, target.key)
                value = row[8] if row[8] is not None else row[9]
                headers = record_headers(row)
                try:
                    produce(target.topic, value, key, on_delivery=report(row[0]), headers=headers)
                except BufferError:
                    record = Record(target.topic, key, value, headers)
                    self._produce_when_possible(self._producer, record, report(row[0]))
            except CannotEncode as error:
                self._fault(row, batch, ErrorCode.CANNOT_ENCODE, str(error))
            except KafkaException as error:
                self._refused_at_once(row[0], error.args[0], batch)

    def _reporter(self, batch: Batch) -> Callable[[int], Report]:
        """Return the factory of delivery callbacks for a batch; kept small, one runs per record."""
        acked = self._flight.acks.append
        refused = self._refused

        def report(outbox_id: int) -> Report:
            def delivered(error: KafkaError | None, message: Message) -> None:
                if error is None:
                    # A plain tuple is an Ack to its only reader, at half the cost.
                    acked((outbox_id, message.partition(), message.offset(), batch))  # type: ignore[arg-type]
                else:
                    refused(Refusal(outbox_id, error, alone=False, batch=batch))

            return delivered

        return report

    def _refused(self, refusal: Refusal) -> None:
        if classify(refusal.error) is FailureClass.FATAL:
            # No report: the row stays in flight until the relay ends and gives it back, uncharged.
            self._on_fatal(refusal.error.str())
        elif refusal.error.code() == KafkaError._PURGE_QUEUE:  # noqa: SLF001 - librdkafka's local codes
            self._flight.unsent.append(Unsent(refusal.outbox_id, refusal.batch, handed=True))
        else:
            self._flight.refusals.append(refusal)

    def _refused_at_once(self, outbox_id: int, error: KafkaError, batch: Batch) -> None:
        """Report a record that `produce` itself refused, which was alone by nature."""
        self._refused(Refusal(outbox_id, error, alone=True, batch=batch))

    def _fault(self, row: ClaimedRow, batch: Batch, code: str, reason: str) -> None:
        self._flight.faults.append(Fault(row[0], code, reason, batch))

    def _produce_when_possible(self, producer: Producer, record: Record, report: Report) -> None:
        """Wait while librdkafka's own queue is full; the poll thread empties it."""
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
                self._done.wait(_QUEUE_FULL_WAIT)
            else:
                return

    def _publish_large(self, row: ClaimedRow, batch: Batch) -> None:
        """Fetch a payload that was left in the database, within the byte budget, and produce it."""
        size = row[10] or 0
        if self._reserve(size, batch):
            fetched = self._fetch(row[0], batch)
            if fetched is not None:
                self._publish_fetched(fetched, batch, self._producer, alone=False, reserved=size)
                return
            self._flight.give_bytes(size)
        else:
            self._flight.hold_lanes(batch.lanes)
        self._flight.unsent.append(Unsent(row[0], batch))

    def _publish_alone(self, suspects: list[Suspect]) -> None:
        if self._lone_producer is None:
            self._lone_producer = self._make_lone_producer()
        for outbox_id, batch in suspects:
            row = None if self._is_over(batch) else self._fetch(outbox_id, batch)
            if row is not None:
                size = len(row[8] or row[9] or b"")
                if self._reserve(size, batch):
                    self._publish_fetched(
                        row, batch, self._lone_producer, alone=True, reserved=size
                    )
                    continue
            self._flight.unsent.append(Unsent(outbox_id, batch))

    def _reserve(self, size: int, batch: Batch) -> bool:
        """Wait for room in the byte budget; False when the batch is over meanwhile."""
        while not self._flight.take_bytes(size, _QUEUE_FULL_WAIT * 4):
            if self._is_over(batch):
                return False
        return True

    def _publish_fetched(
        self, row: ClaimedRow, batch: Batch, producer: Producer, *, alone: bool, reserved: int
    ) -> None:
        """Produce a row whose payload was read on its own; gives the reserved bytes back."""
        outbox_id = row[0]
        acks, refused, give_bytes = self._flight.acks, self._refused, self._flight.give_bytes

        def delivered(error: KafkaError | None, message: Message) -> None:
            give_bytes(reserved)
            if error is None:
                partition, offset = message.partition(), message.offset()
                acks.append(Ack(outbox_id, partition, offset, batch))  # type: ignore[arg-type]  # set once delivered
            else:
                refused(Refusal(outbox_id, error, alone, batch))

        target = self._router.route(row[1])
        value = row[8] if row[8] is not None else row[9]
        try:
            headers = record_headers(row)
            record = Record(target.topic, _record_key(row, target.key), value, headers)
            self._produce_when_possible(producer, record, delivered)
        except CannotEncode as error:
            give_bytes(reserved)
            self._fault(row, batch, ErrorCode.CANNOT_ENCODE, str(error))
        except KafkaException as error:
            give_bytes(reserved)
            self._refused_at_once(outbox_id, error.args[0], batch)

    def _fetch(self, outbox_id: int, batch: Batch) -> ClaimedRow | None:
        """Read a claimed row anew; None where somebody else claimed, edited or cancelled it."""
        parameters = {"outbox_id": outbox_id, "claim_id": batch.claim_id}
        while True:
            try:
                rows = self._session.rows("fetch_row", parameters)
            except ConnectionLost:
                if not self._session.reopen(self._done):
                    return None
            except PASSING:
                self._done.wait(_REFUSED_WAIT)
            else:
                return rows[0] if rows else None


def _record_key(row: ClaimedRow, choice: KeyChoice) -> str | None:
    if choice is KeyChoice.AUTO:
        return row[3] or row[2]
    return row[2] if choice is KeyChoice.MESSAGE_KEY else row[3]
