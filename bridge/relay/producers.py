"""The producers of one relay: main, lone, and those for topics with small limits."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import structlog
from confluent_kafka import KafkaException

from bridge.relay.vitals import Pulse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from confluent_kafka import Producer

_POLL = 0.1
_QUIET_AFTER_FATAL = 1.0
"""Seconds between two new producers: where the cause stays, they end as fast as they are made."""

MAIN = "main"
LONE = "lone"
_SHARE_OF_LIMIT = 0.9
"""Share of a topic's limit that a produce batch may have: its own overhead comes on top."""


@dataclass(slots=True, eq=False)
class _Line:
    """One producer and the thread that serves its reports."""

    name: str
    producer: Producer
    thread: threading.Thread | None = None
    last_use: int | None = None
    """The use during which it ended, see `Producers.in_use`; None before its end."""
    pulse: Pulse = field(default_factory=Pulse)

    @property
    def has_ended(self) -> bool:
        """Tell whether another producer takes its place."""
        return self.last_use is not None


class Producers:
    """Makes producers when they are first needed, replaces one that ended, serves all reports.

    `create(overrides)` starts a producer. A topic's records always go by the same one, or else two
    producers could swap them: `for_limit` answers by the topic's limit alone. `on_failure`
    hears of an error that ends the thread of a producer. Thread-safe; delivery callbacks run in the
    thread of their producer.
    """

    def __init__(
        self,
        create: Callable[[Mapping[str, Any]], Producer],
        batch_bytes: int,
        on_failure: Callable[[BaseException], None] = lambda _: None,
    ) -> None:
        self._create = create
        self._on_failure = on_failure
        self._batch_bytes = batch_bytes
        self._lines: dict[str, _Line] = {}
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._use = 0
        self.on_main: Callable[[Producer], None] = lambda _: None
        """Hears of each new main producer."""
        self._log = structlog.get_logger("bridge.relay.producers")

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Serve every producer got in the block until its end; for the publisher's thread alone.

        One that is replaced meanwhile may still be handed records, which nobody else would report.
        """
        self._use += 1
        try:
            yield
        finally:
            self._use += 1

    def main(self) -> Producer:
        """Return the producer of most topics."""
        return self._producer(MAIN, {})

    def lone(self) -> Producer:
        """Return the producer whose batches hold one record: its refusals concern that record."""
        return self._producer(LONE, {"batch.num.messages": 1})

    def for_limit(self, max_message_bytes: int | None) -> Producer:
        """Return the producer whose batches fit a topic's `max.message.bytes`.

        The broker refuses a batch beyond it although each record in it would pass.
        """
        if max_message_bytes is None or max_message_bytes >= self._batch_bytes / _SHARE_OF_LIMIT:
            return self.main()
        # Powers of two, so that a hundred small topics do not make a hundred producers.
        size = 1 << max(10, int(max_message_bytes * _SHARE_OF_LIMIT).bit_length() - 1)
        return self._producer(f"batches of {size}", {"batch.size": size})

    def _producer(self, name: str, overrides: Mapping[str, Any]) -> Producer:
        line = self._lines.get(name)
        if line is not None and not line.has_ended:
            return line.producer
        with self._lock:
            line = self._lines.get(name)
            if line is None or line.has_ended:
                if line is not None:
                    self._done.wait(_QUIET_AFTER_FATAL)
                line = _Line(name, self._create(overrides))
                line.thread = threading.Thread(
                    target=self._serve, args=(line,), name=f"outbox-bridge-poll-{name}", daemon=True
                )
                self._lines[name] = line
                line.thread.start()
                if name == MAIN:
                    self.on_main(line.producer)
            return line.producer

    def _serve(self, line: _Line) -> None:
        """Serve reports until the end; of a producer that ended, until the last one has come."""
        try:
            while not self._done.is_set():
                line.pulse.beat()
                try:
                    line.producer.poll(_POLL)
                except KafkaException as error:
                    # The client raises a fatal error here, whoever has heard of it already.
                    self.end_fatal(error.args[0].str())
                # In this order: after its last use nothing more comes.
                if self._is_let_go(line) and len(line.producer) == 0:
                    return
        except BaseException as error:  # noqa: BLE001 - reports that nobody serves must end the relay
            self._on_failure(error)
        finally:
            line.pulse.rest()

    def _is_let_go(self, line: _Line) -> bool:
        """Tell whether a producer has ended and nobody can hand it anything any more."""
        last = line.last_use
        return last is not None and (last != self._use or last % 2 == 0)

    def end_fatal(self, reason: str) -> None:
        """Replace producers that can send nothing more; what they held is reported as unsent.

        Called from delivery callbacks and the error callback; never blocks.
        """
        if self._end():
            self._log.error(
                "the idempotent producer cannot go on; a new one takes over, and what it had not "
                "delivered is given back uncharged",
                reason=reason,
            )

    def retire(self) -> None:
        """Replace all producers: what they hold may be sent, and is reported as unsent."""
        if self._end():
            self._log.warning("records on their way are given up; a new producer takes over")

    def _end(self) -> bool:
        """End all producers that have not ended; False where there is none."""
        with self._lock:
            broken = [line for line in self._lines.values() if not line.has_ended]
            for line in broken:
                line.last_use = self._use  # a later one gets another producer
        for line in broken:
            line.producer.purge(in_queue=True, in_flight=True, blocking=False)
        return bool(broken)

    def purge(self) -> None:
        """Drop what librdkafka has not sent yet; its rows are reported as surely unsent."""
        for line in list(self._lines.values()):
            line.producer.purge(in_queue=True, in_flight=False, blocking=False)

    def holds_records(self) -> bool:
        """Tell whether any record waits for Kafka's word."""
        return any(len(line.producer) for line in list(self._lines.values()))

    def wait(self, seconds: float) -> bool:
        """Wait a moment while a queue of librdkafka is full; True once everything is over."""
        return self._done.wait(seconds)

    def finish(self) -> None:
        """End the threads, after everything was settled."""
        self._done.set()

    def pulses(self) -> dict[str, Pulse]:
        """Return the signs of life of the threads that serve reports."""
        return {f"poll {line.name}": line.pulse for line in list(self._lines.values())}

    def threads(self) -> list[threading.Thread]:
        """Return the threads that serve reports."""
        return [line.thread for line in self._lines.values() if line.thread is not None]
