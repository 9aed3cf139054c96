"""Spans of a relay: `send {topic}` for what it hands to Kafka, and `create` where a row has none.

Only messages whose context is sampled cost more than a look at one character. What they cost is
paid in a thread of its own: neither the stages of the relay nor the client's callbacks wait for a
span processor.
"""

from __future__ import annotations

import queue
import re
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import structlog
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)

from bridge.telemetry import names
from bridge.telemetry.tracing import MAX_LINKS, creation_attributes, is_on, tracer

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from opentelemetry.trace import Span

    from bridge.message import ClaimedRow

    Headers = dict[str, str | bytes | None]
    Report = Callable[[Any, Any], None]

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_W3C = frozenset({names.TRACEPARENT, names.TRACESTATE, names.BAGGAGE})
_POSTGRES_EPOCH = 946_684_800_000_000
"""Microseconds from 1970 to 2000, where binary timestamps of PostgreSQL begin."""
_MOST_WAITING = 2_000
"""Groups of records that wait to become spans; what comes beyond that is left out."""


class ClientError(Protocol):
    """An error of the Kafka client."""

    def name(self) -> str:
        """Return the code's name."""


class _Sent(NamedTuple):
    """One sampled message: its creation context, when it was written and when handed over."""

    outbox_id: int
    message_key: str
    attempt: int
    parent: str | SpanContext
    state: str | None
    created_at: Any
    handed_ns: int


class _Group:
    """The sampled records of one claim and topic; `entries` has as many as a span may link to.

    `open` counts those without report, and one for the publisher that may still add some;
    `unlinked` those beyond `entries`, which the span only covers.
    """

    __slots__ = (
        "claim",
        "ended_ns",
        "entries",
        "error",
        "lock",
        "on_end",
        "open",
        "topic",
        "unlinked",
    )

    def __init__(
        self, claim: tuple[str, int], topic: str, on_end: Callable[[_Group], None]
    ) -> None:
        self.claim = claim
        self.topic = topic
        self.on_end = on_end
        self.entries: list[_Sent] = []
        self.unlinked = 0
        self.open = 1
        self.ended_ns = 0
        self.error: str | None = None
        self.lock = threading.Lock()

    def add(self, entry: _Sent) -> None:
        self.entries.append(entry)
        with self.lock:
            self.open += 1

    def cover(self) -> None:
        """Wait for the report of one more record, without a link to it."""
        self.unlinked += 1
        with self.lock:
            self.open += 1

    def report(self, error: str | None = None) -> None:
        """Take the report of one record."""
        with self.lock:
            self.ended_ns = time.time_ns()
            if error is not None:
                self.error = error
            self.open -= 1
            is_over = not self.open
        if is_over:
            self.on_end(self)

    def close(self) -> None:
        """Add nothing more."""
        with self.lock:
            self.open -= 1
            is_over = not self.open
        if is_over:
            self.on_end(self)


def send_spans(relay: str) -> SendSpans | None:
    """Return what makes a relay's spans; None where the process has no SDK, or a disabled one."""
    if not is_on() or isinstance(tracer(), trace.NoOpTracer):
        return None
    return SendSpans(relay, f"outbox-bridge-{relay}")


class SendSpans:
    """Makes the spans of one relay, in a thread of its own from `start` to `finish`."""

    def __init__(self, relay: str, client_id: str) -> None:
        self._relay = relay
        self._client_id = client_id
        self._tracer = tracer()
        fields = propagate.get_global_textmap().fields
        self._writes_w3c = names.TRACEPARENT in fields
        self._other_fields = frozenset(name.lower() for name in fields) - _W3C
        self._ended: queue.SimpleQueue[_Group | tuple[Span, int] | None] = queue.SimpleQueue()
        self._left_out = 0
        self._thread = threading.Thread(target=self._run, name="outbox-bridge-trace", daemon=True)
        self._log = structlog.get_logger("bridge.telemetry")

    def start(self) -> None:
        """Start the thread that makes the spans."""
        self._thread.start()

    def finish(self, timeout: float) -> None:
        """Make the spans of what has been reported, within `timeout` seconds."""
        self._ended.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout)
        if self._left_out:
            self._log.warning("spans were left out", spans=self._left_out)

    def follow(self, claim_id: str, rows: int) -> Sending:
        """Return what follows the records of one claim of so many rows; close it after the last."""
        return Sending(self, (claim_id, rows))

    def end(self, ended: _Group | tuple[Span, int]) -> None:
        """Take a group that has all its reports, or a span with its end; from any thread."""
        if self._ended.qsize() < _MOST_WAITING:
            self._ended.put(ended)
        else:
            self._left_out += 1
            if self._left_out == 1:
                self._log.warning("too many spans at a time; some are left out")

    def creation_of(
        self, row: ClaimedRow, headers: Headers, topic: str
    ) -> str | SpanContext | None:
        """Return the sampled creation context of a row without traceparent; None: not sampled.

        That is a context in another format than W3C's, as OTEL_PROPAGATORS says, or that of a new
        `create` span, which is written into `headers`.
        """
        brought = {name.lower(): name for name in headers}
        own = brought.get(names.TRACEPARENT)
        if own is not None:  # in another case: W3C's names know none
            parent = str(headers[own])
            return parent if parent[-1:] in names.SAMPLED else None
        if not self._other_fields.isdisjoint(brought):
            texts = {name: value for name, value in headers.items() if isinstance(value, str)}
            found = trace.get_current_span(propagate.extract(texts, Context())).get_span_context()
            return found if found.is_valid and found.trace_flags.sampled else None
        return self._create(row, headers, topic)

    def _create(self, row: ClaimedRow, headers: Headers, topic: str) -> SpanContext | None:
        created_ns = _nanoseconds(row[13]) or time.time_ns()
        span = self._tracer.start_span(
            f"{names.CREATE} {topic}",
            context=Context(),
            kind=SpanKind.PRODUCER,
            attributes=creation_attributes(topic, row[4], row[2]) | {names.OUTBOX_ID: row[0]},
            start_time=created_ns,
        )
        context = span.get_span_context()
        if self._writes_w3c and not context.trace_state:
            headers[names.TRACEPARENT] = (
                f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
            )
        else:
            carrier: dict[str, str] = {}
            propagate.inject(carrier, trace.set_span_in_context(span, Context()))
            headers.update(carrier)
        if span.is_recording():
            self.end((span, created_ns))
        return context if context.trace_flags.sampled else None

    def _run(self) -> None:
        while True:
            ended = self._ended.get()
            if ended is None:
                return
            with suppress(Exception):  # a third party's sampler or processor
                if isinstance(ended, tuple):
                    ended[0].end(ended[1])
                else:
                    self._emit(ended)

    def _emit(self, group: _Group) -> None:
        links: list[Link] = []
        longest = 0.0
        for entry in group.entries:
            context = _context(entry)
            if context is None:
                continue
            created_ns = _nanoseconds(entry.created_at)
            if created_ns is None:
                links.append(Link(context))
                continue
            wait = max(0, entry.handed_ns - created_ns) / 1e9
            longest = max(longest, wait)
            links.append(Link(context, {names.OUTBOX_WAIT: wait}))
        if not links:
            return
        # Its child, so that a sampler which follows the parent's decision keeps the span, as it
        # keeps what led to it; and so that the trace of a message sent alone is a tree.
        parent = trace.set_span_in_context(NonRecordingSpan(links[0].context), Context())
        span = self._tracer.start_span(
            f"{names.SEND} {group.topic}",
            context=parent,
            kind=SpanKind.CLIENT,
            attributes=self._attributes(group) | {names.OUTBOX_LONGEST_WAIT: longest},
            links=links,
            start_time=group.entries[0].handed_ns,
        )
        if group.error is not None:
            span.set_attribute(names.ERROR_TYPE, group.error)
            span.set_status(Status(StatusCode.ERROR, group.error))
        span.end(group.ended_ns)

    def _attributes(self, group: _Group) -> dict[str, str | bool | int | float]:
        claim_id, rows = group.claim
        attributes: dict[str, str | bool | int | float] = {
            names.MESSAGING_SYSTEM: names.KAFKA,
            names.MESSAGING_OPERATION_NAME: names.SEND,
            names.MESSAGING_OPERATION_TYPE: names.SEND,
            names.MESSAGING_DESTINATION_NAME: group.topic,
            names.MESSAGING_CLIENT_ID: self._client_id,
            names.OUTBOX_RELAY: self._relay,
            names.OUTBOX_CLAIM_ID: claim_id,
            names.OUTBOX_CLAIM_ROWS: rows,
        }
        if len(group.entries) == 1:
            only = group.entries[0]
            attributes[names.OUTBOX_ID] = only.outbox_id
            attributes[names.OUTBOX_MESSAGE_KEY] = only.message_key
            attributes[names.OUTBOX_ATTEMPT] = only.attempt
        else:
            attributes[names.MESSAGING_BATCH_MESSAGE_COUNT] = len(group.entries) + group.unlinked
        if group.unlinked:
            attributes[names.OUTBOX_UNLINKED] = group.unlinked
        return attributes


class Sending:
    """The records of one claim on their way; used by the publisher's thread."""

    __slots__ = ("_claim", "_groups", "_last", "_spans")

    def __init__(self, spans: SendSpans, claim: tuple[str, int]) -> None:
        self._spans = spans
        self._claim = claim
        self._groups: dict[str, _Group] = {}
        self._last: tuple[int, _Group] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for group in self._groups.values():
            group.close()

    def record(
        self, row: ClaimedRow, headers: Headers, topic: str, report: Report, *, may_grow: bool
    ) -> Report:
        """Return the callback for a record whose traceparent is sampled or missing.

        A missing one is added to `headers`, unless the record must not become larger.
        """
        try:
            parent: Any = headers.get(names.TRACEPARENT)
            if parent is None:
                parent = self._spans.creation_of(row, headers, topic) if may_grow else None
                if parent is None:
                    return report
            group = self._groups.get(topic)
            if group is None:
                group = self._groups[topic] = _Group(self._claim, topic, self._spans.end)
            if len(group.entries) < MAX_LINKS:
                state: Any = headers.get(names.TRACESTATE)
                now = time.time_ns()
                group.add(_Sent(row[0], row[2], row[6], parent, state, row[13], now))
            else:
                group.cover()
        except Exception:  # noqa: BLE001 - a third party's sampler, processor or propagator
            return report
        self._last = (row[0], group)

        def reported(error: ClientError | None, message: Any) -> None:
            report(error, message)
            group.report(None if error is None else error.name())

        return reported

    def refused(self, outbox_id: int, error: ClientError) -> None:
        """Tell that `produce` itself refused a record: no report comes."""
        if self._last is not None and self._last[0] == outbox_id:
            self._last[1].report(error.name())
            self._last = None


def _context(entry: _Sent) -> SpanContext | None:
    """Return a message's creation context; None where it is not one."""
    if isinstance(entry.parent, SpanContext):
        return entry.parent
    found = _TRACEPARENT.match(entry.parent)
    if found is None:
        return None
    context = SpanContext(
        int(found[1], 16),
        int(found[2], 16),
        is_remote=True,
        trace_flags=TraceFlags(int(found[3], 16)),
        trace_state=TraceState.from_header([entry.state]) if entry.state else None,
    )
    return context if context.is_valid else None


def _nanoseconds(raw: Any) -> int | None:
    """Decode a binary timestamptz to nanoseconds since 1970; None where there is no such moment."""
    if raw is None:
        return None
    moment = (int.from_bytes(raw, "big", signed=True) + _POSTGRES_EPOCH) * 1000
    return moment if 0 <= moment < 1 << 63 else None
