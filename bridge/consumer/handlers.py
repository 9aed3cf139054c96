"""Which function handles which event, and what it wants to be given."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from fnmatch import translate
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

import orjson

from bridge.consumer.received import Received, UndecodableError
from bridge.consumer.shapes import ShapeError, admits_none, converter
from bridge.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.consumer.shapes import Convert

_PATTERN_CHARACTERS = frozenset("*?[")
_BY_NAME = ("conn", "message", "messages")


@dataclass(frozen=True, slots=True)
class Handler:
    """One registered function.

    `many` takes a list of payloads (and of `messages`); `in_transaction` False means that the work
    happens elsewhere, between a look into the inbox and the row.
    """

    function: Callable[..., Any]
    is_async: bool
    many: bool
    in_transaction: bool
    wants: frozenset[str]
    convert: Convert
    raw: bool
    takes_tombstones: bool

    def payload(self, received: Received) -> Any:
        """Return the payload in the shape the function wants; raises UndecodableError."""
        value = received.value
        if value is None:
            if not self.takes_tombstones:
                raise UndecodableError(
                    f"is a tombstone, and {self.function.__qualname__} takes no None"
                )
            return None
        if self.raw:
            return value
        if not is_json(received.content_type):
            raise UndecodableError(
                f"content type {received.content_type} is not JSON; annotate the first parameter "
                f"of {self.function.__qualname__} with bytes"
            )
        try:
            decoded = orjson.loads(value)
        except orjson.JSONDecodeError as error:
            raise UndecodableError(f"payload is not JSON: {error}") from error
        try:
            return self.convert(decoded, "payload")
        except ShapeError as error:
            raise UndecodableError(str(error)) from error

    def call(self, payload: Any, received: Received, conn: Any) -> Any:
        """Call the function for one message; an awaitable comes back from an async one."""
        if not self.wants and not self.many:
            return self.function(payload)
        if self.many:
            return self.call_many([payload], [received], conn)
        given = {"conn": conn, "message": received}
        return self.function(payload, **{name: given[name] for name in self.wants})

    def call_many(self, payloads: list[Any], received: list[Received], conn: Any) -> Any:
        """Call the function for several messages, in their order."""
        given = {"conn": conn, "messages": received}
        return self.function(payloads, **{name: given[name] for name in self.wants})


class Handlers:
    """Handlers by event type: exact names first, then patterns in the order of registration."""

    def __init__(self) -> None:
        self._exact: dict[str, Handler] = {}
        self._patterns: list[tuple[re.Pattern[str], Handler]] = []
        self._known: dict[str, Handler | None] = {}

    def __bool__(self) -> bool:
        return bool(self._exact or self._patterns)

    def add(self, event_type: str, handler: Handler) -> None:
        """Register a handler. Raises ConfigurationError for a type that has one."""
        self._known.clear()
        if not _PATTERN_CHARACTERS.isdisjoint(event_type):
            self._patterns.append((re.compile(translate(event_type)), handler))
            return
        if event_type in self._exact:
            raise ConfigurationError(
                f"event type {event_type!r} has two handlers: "
                f"{self._exact[event_type].function.__qualname__} and "
                f"{handler.function.__qualname__}"
            )
        self._exact[event_type] = handler

    def find(self, event_type: str) -> Handler | None:
        """Return the handler of an event type, or None."""
        try:
            return self._known[event_type]
        except KeyError:
            found = self._exact.get(event_type)
            if found is None:
                matching = (h for pattern, h in self._patterns if pattern.fullmatch(event_type))
                found = next(matching, None)
            if len(self._known) < 10_000:  # noqa: PLR2004 - a stranger's types must not fill memory
                self._known[event_type] = found
            return found


def describe(
    function: Callable[..., Any], *, many: bool, transaction: bool, payload_type: Any = None
) -> Handler:
    """Look at a function and return its handler; raises ConfigurationError for a signature that
    cannot be called.
    """  # noqa: D205 - one sentence
    parameters = list(inspect.signature(function).parameters.values())
    named = [p for p in parameters[1:] if p.kind is not p.VAR_KEYWORD and p.default is p.empty]
    allowed = {"conn", "messages" if many else "message"}
    if not parameters or any(parameter.name not in allowed for parameter in named):
        raise ConfigurationError(
            f"handler {function.__qualname__} takes ({', '.join(p.name for p in parameters)}); it "
            f"must take the payload first, and may take {' and '.join(sorted(allowed))} by name"
        )
    wants = frozenset(p.name for p in parameters[1:] if p.name in allowed)
    if "conn" in wants and not transaction:
        raise ConfigurationError(
            f"handler {function.__qualname__} wants conn, but is registered with transaction=False"
        )
    annotation = payload_type or _annotation(function, parameters[0], many=many)
    raw = _is_bytes(annotation)
    return Handler(
        function=function,
        is_async=_is_async(function),
        many=many,
        in_transaction=transaction,
        wants=wants,
        convert=converter(object if raw else annotation),
        raw=raw,
        takes_tombstones=admits_none(annotation),
    )


def is_json(content_type: str) -> bool:
    """Whether a content type is JSON: `application/json`, `application/cloudevents+json` …."""
    kind = content_type.partition(";")[0].strip().lower()
    return kind.endswith(("/json", "+json"))


def _is_async(function: Callable[..., Any]) -> bool:
    call = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004 - a method is looked at, not asked for
    return inspect.iscoroutinefunction(call)


def _annotation(function: Callable[..., Any], parameter: inspect.Parameter, *, many: bool) -> Any:
    if parameter.annotation is parameter.empty:
        return Any
    annotation = parameter.annotation
    if isinstance(annotation, str):
        try:
            # Of this parameter alone: the others may be imported for type checkers only.
            holder = SimpleNamespace(__annotations__={parameter.name: annotation})
            annotation = get_type_hints(holder, globalns=_globals(function))[parameter.name]
        except NameError as error:
            raise ConfigurationError(
                f"the annotation {annotation} of handler {function.__qualname__} cannot be read: "
                f"{error}; define or import it at module level (not under TYPE_CHECKING), or say "
                "payload_type=…"
            ) from error
    if many:
        arguments = get_args(annotation)
        if annotation is list or not arguments or get_origin(annotation) is dict:
            return Any
        return arguments[0]
    return annotation


def _globals(function: Callable[..., Any]) -> dict[str, Any]:
    inner = inspect.unwrap(function)
    if not inspect.isroutine(inner):
        inner = type(inner).__call__
    found: dict[str, Any] = getattr(inner, "__globals__", {})
    return found


def _is_bytes(annotation: Any) -> bool:
    return annotation is bytes or (
        bytes in get_args(annotation) and set(get_args(annotation)) <= {bytes, type(None)}
    )
