"""Single keys of a terminal, without Enter."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Keyboard:
    """Waits for a key; only sleeps where stdin is no terminal."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def wait(self, seconds: float) -> str:
        """Return the key that was pressed within so many seconds, lower case, else ''."""
        if self._descriptor is None:
            time.sleep(seconds)
            return ""
        readable, _, _ = select.select([self._descriptor], [], [], seconds)
        if not readable:
            return ""
        return os.read(self._descriptor, 64).decode("utf-8", "replace")[:1].lower()


@contextmanager
def keyboard() -> Iterator[Keyboard]:
    """Take single keys from the terminal, and leave it as it was found."""
    if not sys.stdin.isatty():
        yield Keyboard(None)
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield Keyboard(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
