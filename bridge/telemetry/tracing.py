"""Spans of a consumer: `process {topic}`, linked to what created the message, or its child.

    with processing(record.headers, topic=record.topic, group="payments") as span:
        handle(record)

Uses OpenTelemetry's API alone: what becomes of the spans is decided by the SDK that the process has
set up, and without one they cost a few microseconds and go nowhere. Telemetry never raises.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from opentelemetry import baggage, context, propagate, trace
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode

from bridge.message import (
    HEADER_ATTEMPT,
    HEADER_EVENT_TYPE,
    HEADER_IDEMPOTENCY_KEY,
    HEADER_OUTBOX_ID,
)
from bridge.telemetry import names
from bridge.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from contextvars import Token
    from types import TracebackType

    from opentelemetry.context import Context

    Headers = Mapping[str, str | bytes | None] | Iterable[tuple[str, str | bytes | None]]
    Attributes = dict[str, str | bool | int | float]

MAX_LINKS = 128
"""Links of one span: the default limit of every SDK."""

_log = logging.getLogger("bridge.telemetry")


def tracer() -> trace.Tracer:
    """Return the tracer of all spans of ours, by the provider that the process has now."""
    return trace.get_tracer(names.SCOPE, __version__, schema_url=names.SCHEMA_URL)


def is_on() -> bool:
    """Tell whether the process has set up an SDK, so that spans go anywhere."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def processing(
    headers: Headers,
    *,
    topic: str,
    partition: int | None = None,
    offset: int | None = None,
    key: str | bytes | None = None,
    group: str | None = None,
    client_id: str | None = None,
    timestamp_ms: int | None = None,
    is_tombstone: bool = False,
    as_child: bool = False,
) -> Processing:
    """Return a context manager: the span `process {topic}` around the handling of one record.

    `headers` as aiokafka or confluent-kafka give them. The span links to the message's creation
    context; with `as_child` it is its child as well, so that one trace leads from the business
    transaction to here. Baggage that came with the message is current inside. An exception that
    passes through marks the span as failed and goes on. `timestamp_ms` is the record's own.
    """
    try:
        found = _texts(headers)
        attributes = _attributes(topic, group, client_id)
        if partition is not None:
            attributes[names.MESSAGING_DESTINATION_PARTITION_ID] = str(partition)
        if offset is not None:
            attributes[names.MESSAGING_KAFKA_OFFSET] = offset
        if key is not None:
            attributes[names.MESSAGING_KAFKA_MESSAGE_KEY] = _text(key)
        if is_tombstone:
            attributes[names.MESSAGING_KAFKA_MESSAGE_TOMBSTONE] = True
        if timestamp_ms is not None and timestamp_ms > 0:
            attributes[names.OUTBOX_TRANSIT] = max(0.0, time.time() - timestamp_ms / 1000)
        _add_own(attributes, found)
        here, creation = _contexts(found, as_child=as_child)
        links = [Link(creation)] if creation.is_valid else []
        span = tracer().start_span(
            f"{names.PROCESS} {topic}",
            context=here,
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=links,
        )
        return Processing(span, here)
    except Exception:  # noqa: BLE001 - a third party's propagator, sampler or processor
        return _untraced()


def processing_batch(
    records: Iterable[Headers],
    *,
    topic: str,
    group: str | None = None,
    client_id: str | None = None,
) -> Processing:
    """Return a context manager: one span `process {topic}` around the handling of many records.

    `records` are the headers of each. Linked are the first 128 messages whose context is sampled; a
    span of many messages is nobody's child.
    """
    try:
        count = 0
        links: list[Link] = []
        for headers in records:
            count += 1
            if len(links) < MAX_LINKS:
                creation = _contexts(_texts(headers), as_child=False)[1]
                if creation.is_valid and creation.trace_flags.sampled:
                    links.append(Link(creation))
        attributes = _attributes(topic, group, client_id)
        attributes[names.MESSAGING_BATCH_MESSAGE_COUNT] = count
        span = tracer().start_span(
            f"{names.PROCESS} {topic}",
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=links,
        )
        return Processing(span, context.get_current())
    except Exception:  # noqa: BLE001 - as above
        return _untraced()


class Processing:
    """The span while a handler runs; it is the current one between enter and exit.

    Enter and leave it in one thread or one asyncio task.
    """

    __slots__ = ("_context", "_span", "_token")

    def __init__(self, span: trace.Span, parent: Context) -> None:
        self._span = span
        self._context = trace.set_span_in_context(span, parent)
        self._token: Token[Context] | None = None

    @property
    def trace_id(self) -> str | None:
        """The trace's id in hexadecimal; None where there is no trace."""
        found = self._span.get_span_context()
        return trace.format_trace_id(found.trace_id) if found.is_valid else None

    def note(self, name: str, value: str | float) -> None:
        """Set an attribute; `names` has those that others know."""
        self._span.set_attribute(name, value)

    def mark_duplicate(self) -> None:
        """Tell that the message was known already and nothing was done."""
        self.note(names.OUTBOX_DUPLICATE, value=True)

    def fail(self, error_type: str, reason: str = "") -> None:
        """Mark the span as failed, for an error that does not leave the `with` block."""
        self._span.set_attribute(names.ERROR_TYPE, error_type)
        self._span.set_status(Status(StatusCode.ERROR, reason or error_type))

    def __enter__(self) -> Self:
        self._token = context.attach(self._context)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # A cancelled handler has not failed: the message comes again.
        if isinstance(error, Exception):
            self._span.record_exception(error)
            self.fail(error_type(error), f"{type(error).__name__}: {error}")
        if self._token is not None:
            context.detach(self._token)
        with suppress(Exception):  # a third party's processor
            self._span.end()


def error_type(error: BaseException) -> str:
    """Return the value of error.type for an exception: its class, with its module."""
    kind = type(error)
    is_builtin = kind.__module__ == "builtins"
    return kind.__qualname__ if is_builtin else f"{kind.__module__}.{kind.__qualname__}"


def _untraced() -> Processing:
    _log.debug("no span for a message", exc_info=True)
    return Processing(trace.INVALID_SPAN, context.get_current())


def _contexts(found: Mapping[str, str], *, as_child: bool) -> tuple[Context, SpanContext]:
    """Return the context to begin a span in, and the message's creation context."""
    extracted = propagate.extract(found, context=context.Context())
    creation = trace.get_current_span(extracted).get_span_context()
    here = context.get_current()
    for name, value in baggage.get_all(extracted).items():
        here = baggage.set_baggage(name, value, here)
    if as_child and creation.is_valid:
        here = trace.set_span_in_context(trace.NonRecordingSpan(creation), here)
    return here, creation


def creation_attributes(destination: str, event_type: str, message_key: str) -> Attributes:
    """Return the attributes of a `create` span."""
    return {
        names.MESSAGING_SYSTEM: names.KAFKA,
        names.MESSAGING_OPERATION_NAME: names.CREATE,
        names.MESSAGING_OPERATION_TYPE: names.CREATE,
        names.MESSAGING_DESTINATION_NAME: destination,
        names.OUTBOX_EVENT_TYPE: event_type,
        names.OUTBOX_MESSAGE_KEY: message_key,
    }


def _attributes(topic: str, group: str | None, client_id: str | None) -> Attributes:
    attributes: Attributes = {
        names.MESSAGING_SYSTEM: names.KAFKA,
        names.MESSAGING_OPERATION_NAME: names.PROCESS,
        names.MESSAGING_OPERATION_TYPE: names.PROCESS,
        names.MESSAGING_DESTINATION_NAME: topic,
    }
    if group is not None:
        attributes[names.MESSAGING_CONSUMER_GROUP_NAME] = group
    if client_id is not None:
        attributes[names.MESSAGING_CLIENT_ID] = client_id
    return attributes


def _add_own(attributes: Attributes, found: Mapping[str, str]) -> None:
    """Add what a relay wrote into the record's headers."""
    for header, name in (
        (HEADER_OUTBOX_ID, names.OUTBOX_ID),
        (HEADER_ATTEMPT, names.OUTBOX_ATTEMPT),
    ):
        text = found.get(header, "")
        if text.isdecimal():
            attributes[name] = int(text)
    for header, name in (
        (HEADER_IDEMPOTENCY_KEY, names.OUTBOX_MESSAGE_KEY),
        (HEADER_EVENT_TYPE, names.OUTBOX_EVENT_TYPE),
    ):
        if header in found:
            attributes[name] = found[header]


def _texts(headers: Headers) -> dict[str, str]:
    """Return headers by lower-case name, the last of each; such as are no text are left out."""
    pairs: Any = headers.items() if hasattr(headers, "items") else headers or ()
    found = {}
    for name, value in pairs:
        if value is not None:
            found[name.lower()] = _text(value)
    return found


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")
