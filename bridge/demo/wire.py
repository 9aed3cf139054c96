"""How a child process of the demo talks: JSON lines, commands on its stdin, facts on its stdout."""

from __future__ import annotations

import os
import select
from typing import Any

import orjson

_STDIN, _STDOUT = 0, 1
_CHUNK = 65_536


class DemoEndedError(Exception):
    """The process that gives the commands is gone; whoever gets this ends too."""


class Wire:
    """The child's end."""

    def __init__(self) -> None:
        self._buffer = b""

    def say(self, **facts: Any) -> None:
        """Tell facts; later ones of the same name replace earlier ones."""
        try:
            os.write(_STDOUT, orjson.dumps(facts) + b"\n")
        except BrokenPipeError:
            raise DemoEndedError from None

    def commands(self, timeout: float = 0.0) -> list[dict[str, Any]]:
        """Return the commands that have come, waiting at most `timeout` seconds for the first."""
        if not select.select([_STDIN], [], [], timeout)[0]:
            return []
        data = os.read(_STDIN, _CHUNK)
        if not data:
            raise DemoEndedError
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        return [orjson.loads(line) for line in lines]
