"""Traces of a command that runs as a service, where OTEL_* variables ask for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.telemetry.sdk import Tracing


def start_traces(service: str) -> Tracing | None:
    """Set up tracing; None where nobody asked for it, or where it cannot be set up.

    `service` is its name unless the variables give one. Call it once logging is set up, and
    `close(seconds)` what it returns at the end.
    """
    from bridge.settings import are_traces_wanted  # noqa: PLC0415 - `--help` must not wait for it

    if not are_traces_wanted(service):
        return None
    from bridge.telemetry.sdk import start_tracing  # noqa: PLC0415 - only where it is wanted

    return start_tracing()
