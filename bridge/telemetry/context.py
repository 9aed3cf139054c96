"""Puts the caller's trace context into a message's headers, where OpenTelemetry is in use.

Loads the OpenTelemetry API only in a process that loaded it already: without it there is no span
whose context could travel. The SDK is never touched.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from bridge.message import RESERVED_HEADERS

if TYPE_CHECKING:
    from collections.abc import Mapping


def current_context() -> Mapping[str, str]:
    """Return the current span's context as headers (`traceparent` …); empty where there is none.

    Telemetry must not break a business transaction: whatever a propagator raises or adds beside
    plain strings is left out.
    """
    if "opentelemetry.context" not in sys.modules:
        return {}
    carrier: dict[Any, Any] = {}
    try:
        from opentelemetry import propagate  # noqa: PLC0415 - only where it is in use

        propagate.inject(carrier)
    except Exception:  # noqa: BLE001 - a third party's propagator
        return {}
    return usable(carrier)


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
