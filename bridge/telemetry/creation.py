"""The span `create {destination}`: a message is written, and its headers carry the span's context.

Like `bridge.telemetry.context`, loads OpenTelemetry's API only in a process that loaded it already.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from bridge.telemetry import names
from bridge.telemetry.context import current_context, is_loaded, usable

if TYPE_CHECKING:
    from types import TracebackType

    from opentelemetry.trace import Span

    from bridge.message import Message


class Enqueued(Protocol):
    """What became of a message: the fields of EnqueueResult that a span tells."""

    @property
    def outbox_id(self) -> int:
        """The row that has the message's key now."""

    @property
    def created(self) -> bool:
        """Whether this call wrote it."""


Step = TypeVar("Step")
Rows = TypeVar("Rows")
Result = TypeVar("Result", bound=Enqueued | Sequence[Enqueued])


class Creations:
    """The creation of the messages of one call, while they are checked and then written.

        creations = Creations()
        with creations:
            draft = check_message(message, creations.begin(message), limit)
        return creations.around(write_one(draft))

    Each message begins its own span in the caller's trace, unless that trace is not sampled or the
    process has no SDK: then the caller's context itself travels. The spans end with the steps that
    write the messages, or with an error: raised inside `with`, or thrown into the steps.
    Telemetry must not break a business transaction: nothing here raises.
    """

    __slots__ = ("_context", "_spans", "_starts_spans")

    def __init__(self) -> None:
        self._context: Mapping[str, str] = {}
        self._spans: list[Span | None] = []
        self._starts_spans = False

    def __enter__(self) -> Self:
        if is_loaded():
            self._context = current_context()
            with suppress(Exception):  # a third party's provider
                self._starts_spans = _starts_spans()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self._end(error)

    def begin(self, message: Message) -> Mapping[str, str]:
        """Return the headers that carry a message's creation context; empty without tracing.

        A message that brings its own traceparent keeps it, with nothing of another trace beside it.
        """
        span = None
        headers = self._context
        if self._starts_spans or headers:
            own = message.headers
            if isinstance(own, Mapping) and any(_is_parent(name) for name in own):
                headers = {n: v for n, v in headers.items() if n not in _OF_A_PARENT}
            elif self._starts_spans and isinstance(message.destination, str):
                with suppress(Exception):  # whatever a sampler, processor or propagator raises
                    span, headers = _begin(message)
        self._spans.append(span)
        return headers

    def around(self, steps: Generator[Step, Rows, Result]) -> Generator[Step, Rows, Result]:
        """Return the same steps; the spans end with them and tell the rows that they wrote."""
        if not any(self._spans):
            return steps
        return self._ending(steps)

    def _ending(self, steps: Generator[Step, Rows, Result]) -> Generator[Step, Rows, Result]:
        try:
            result = yield from steps
        except BaseException as error:
            self._end(error)
            raise
        for span, one in zip(self._spans, _listed(result), strict=False):
            if span is not None:
                with suppress(Exception):
                    span.set_attribute(names.OUTBOX_ID, one.outbox_id)
                    if not one.created:
                        span.set_attribute(names.OUTBOX_DUPLICATE, True)  # noqa: FBT003 - OpenTelemetry's
        self._end(None)
        return result

    def _end(self, error: BaseException | None) -> None:
        for span in self._spans:
            if span is not None:
                with suppress(Exception):
                    if error is not None:
                        _fail(span, error)
                    span.end()


def _listed(result: Enqueued | Sequence[Enqueued]) -> Sequence[Enqueued]:
    return result if isinstance(result, Sequence) else (result,)


_OF_A_PARENT = frozenset({names.TRACEPARENT, names.TRACESTATE})


def _is_parent(name: Any) -> bool:
    return isinstance(name, str) and name.lower() == names.TRACEPARENT


def _starts_spans() -> bool:
    """Tell whether an SDK takes spans and the caller's trace, where there is one, is sampled."""
    from opentelemetry import trace  # noqa: PLC0415 - only where it is in use

    from bridge.telemetry import tracing  # noqa: PLC0415 - likewise

    if not tracing.is_on():
        return False
    current = trace.get_current_span().get_span_context()
    return current.trace_flags.sampled or not current.is_valid


def _begin(message: Message) -> tuple[Span, Mapping[str, str]]:
    from opentelemetry import propagate, trace  # noqa: PLC0415 - only where it is in use

    from bridge.telemetry import tracing  # noqa: PLC0415 - likewise

    span = tracing.tracer().start_span(
        f"{names.CREATE} {message.destination}",
        kind=trace.SpanKind.PRODUCER,
        attributes=tracing.creation_attributes(
            message.destination, message.event_type, message.message_key
        ),
    )
    carrier: dict[Any, Any] = {}
    try:
        propagate.inject(carrier, trace.set_span_in_context(span))
    except Exception:
        span.end()
        raise
    return span, usable(carrier)


def _fail(span: Span, error: BaseException) -> None:
    from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - only where it is in use

    from bridge.telemetry import tracing  # noqa: PLC0415 - likewise

    span.set_attribute(names.ERROR_TYPE, tracing.error_type(error))
    # Not the error's text: it may quote the payload.
    span.set_status(Status(StatusCode.ERROR, type(error).__name__))
