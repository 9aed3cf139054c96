"""Log lines: readable on a terminal, one JSON object a line elsewhere; always on stderr."""

from __future__ import annotations

import json
import logging
import sys
from typing import TYPE_CHECKING, Any, Literal, TextIO

import orjson
import structlog

if TYPE_CHECKING:
    from collections.abc import Mapping

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "console", "json"]


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
    that thread: each stage's thread binds its own name.
    """
    out = stream or sys.stderr
    as_json = format == "json" or (format == "auto" and not out.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
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


def _to_json(event: Mapping[str, Any], **_options: object) -> str:
    try:
        return orjson.dumps(
            event, default=str, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_UTC_Z
        ).decode()
    except TypeError:
        # Text that is no UTF-8 (a file's name) or a number beyond 64 bits: never lose the line.
        return json.dumps(event, default=str)
