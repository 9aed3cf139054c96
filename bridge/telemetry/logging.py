"""Log lines: readable on a terminal, one JSON object a line elsewhere; always on stderr."""

from __future__ import annotations

import json
import logging
import math
import sys
import time
from typing import TYPE_CHECKING, Any, Literal, TextIO

import orjson
import structlog

from bridge.telemetry.context import is_loaded
from bridge.telemetry.names import LOG_SPAN_ID, LOG_TRACE_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "console", "json"]

_TELEMETRY_LOGGERS = ("opentelemetry", "urllib3")


def configure_logging(
    level: Level = "info",
    format: Format = "auto",  # noqa: A002 - the setting's name
    *,
    stream: TextIO | None = None,
    colors: bool = True,
) -> None:
    """Set up structlog, and the standard library's logging to come out the same way.

    `auto` is `console` where `stream` (stderr by default) is a terminal. `colors` False keeps the
    console plain. What is bound with `structlog.contextvars.bind_contextvars` is on every line of
    that thread: each stage's thread binds its own name. A line from within a span carries its ids.
    OpenTelemetry's own complaints come once a minute each.
    """
    out = stream or sys.stderr
    as_json = format == "json" or (format == "auto" and not out.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        add_span_ids,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[structlog.typing.Processor]
    if as_json:
        last = [
            structlog.processors.format_exc_info,
            structlog.processors.UnicodeDecoder(),
            structlog.processors.JSONRenderer(serializer=_to_json),
        ]
    else:
        # Plain tracebacks: frames' local variables may hold passwords and payloads.
        last = [
            structlog.dev.ConsoleRenderer(
                colors=colors and out.isatty(),
                exception_formatter=structlog.dev.plain_traceback,
            )
        ]
    handler = logging.StreamHandler(out)
    handler.addFilter(CalmTelemetry())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(), *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def add_span_ids(
    _logger: object, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Add the ids of the current span, where there is one; a structlog processor."""
    if is_loaded():
        from opentelemetry import trace  # noqa: PLC0415 - only where it is in use

        found = trace.get_current_span().get_span_context()
        if found.is_valid:
            event.setdefault(LOG_TRACE_ID, trace.format_trace_id(found.trace_id))
            event.setdefault(LOG_SPAN_ID, trace.format_span_id(found.span_id))
    return event


class CalmTelemetry(logging.Filter):
    """Lets a line of OpenTelemetry's own through only if none like it came in the last `seconds`.

    An exporter whose receiver is down complains at each attempt, and of each span that it drops.
    """

    def __init__(self, seconds: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._seconds = seconds
        self._clock = clock
        self._last: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether to log the line."""
        if not record.name.startswith(_TELEMETRY_LOGGERS):
            return True
        kind = (record.name, str(record.msg))  # before its values are put in
        now = self._clock()
        if now - self._last.get(kind, -math.inf) < self._seconds:
            return False
        self._last[kind] = now
        return True


def _to_json(event: Mapping[str, Any], **_options: object) -> str:
    try:
        return orjson.dumps(
            event, default=str, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_UTC_Z
        ).decode()
    except TypeError:
        # Text that is no UTF-8 (a file's name) or a number beyond 64 bits: never lose the line.
        return json.dumps(event, default=str)
