"""Signals that end a relay: the first drains, the second forces."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from bridge.relay.supervisor import Relay


@contextmanager
def obeyed_by(relay: Relay) -> Iterator[None]:
    """Let SIGTERM and SIGINT end a relay; outside the main thread, which alone may, do nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(_number: int, _frame: FrameType | None) -> None:
        if relay.is_stopping:
            relay.force()
        else:
            relay.stop()

    previous = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
