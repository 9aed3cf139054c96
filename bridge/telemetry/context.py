"""Puts the caller's trace context into a message's headers, where OpenTelemetry is in use.

Loads the OpenTelemetry API only in a process that loaded it already: without it there is no span
whose context could travel. The SDK is never touched.
"""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bridge.message import RESERVED_HEADERS
from bridge.telemetry import names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


def is_loaded() -> bool:
    """Tell whether the process uses OpenTelemetry at all."""
    return "opentelemetry.context" in sys.modules


def current_context() -> Mapping[str, str]:
    """Return the current span's context as headers (`traceparent` …); empty where there is none.

    Telemetry must not break a business transaction: whatever a propagator raises or adds beside
    plain strings is left out.
    """
    if not is_loaded():
        return {}
    carrier: dict[Any, Any] = {}
    try:
        from opentelemetry import propagate  # noqa: PLC0415 - only where it is in use

        propagate.inject(carrier)
    except Exception:  # noqa: BLE001 - a third party's propagator
        return {}
    return usable(carrier)


def trace_id_of(traceparent: str | None) -> str | None:
    """Return the trace id that a traceparent names; None where it is none by W3C's rules."""
    found = _TRACEPARENT.fullmatch(traceparent) if traceparent else None
    return found[1] if found is not None and found[1].strip("0") else None


def message_fields(
    outbox_id: int, message_key: str, traceparent: str | None
) -> dict[str, int | str]:
    """Return the fields of a log line that is about one message."""
    fields: dict[str, int | str] = {
        names.LOG_OUTBOX_ID: outbox_id,
        names.LOG_MESSAGE_KEY: message_key,
    }
    trace_id = trace_id_of(traceparent)
    return fields if trace_id is None else {**fields, names.LOG_TRACE_ID: trace_id}


@contextmanager
def uninstrumented() -> Iterator[None]:
    """Let the instrumentations of drivers, where there are any, make no spans in this thread.

    A relay that looks for rows each few milliseconds would be nothing but traces.
    """
    if "opentelemetry.instrumentation.utils" not in sys.modules:
        yield
        return
    from opentelemetry.instrumentation.utils import (  # noqa: PLC0415 - only where it is in use
        suppress_instrumentation,
    )

    with suppress_instrumentation():
        yield


def usable(carrier: Mapping[Any, Any]) -> dict[str, str]:
    """Return what of a propagator's headers a row can carry."""
    return {
        name: value
        for name, value in carrier.items()
        if isinstance(name, str)
        and isinstance(value, str)
        and name.lower() not in RESERVED_HEADERS
        and "\x00" not in name + value
    }
