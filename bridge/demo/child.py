"""A child process that takes commands and tells facts: the demo's end of the wire."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Self

import orjson

from bridge.errors import OutboxError
from bridge.local.process import tail

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

_CHUNK = 65_536
_END_SECONDS = 5.0


class Child:
    """`python -m <module> <argument>` with JSON lines both ways; its errors go to `log`.

    It ends with this process, however that ends: its stdin closes then. It has a session of its
    own, so that Ctrl-C reaches this process alone, which then ends it.
    """

    def __init__(
        self, module: str, argument: Any, *, log: Path, environment: Mapping[str, str]
    ) -> None:
        self.name = module.rpartition(".")[2]
        self.facts: dict[str, Any] = {}
        self._log = log
        self._buffer = b""
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, orjson.dumps(argument).decode()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=log.parent,
                env=environment,
                start_new_session=True,
                bufsize=0,
            )
        assert self._process.stdin is not None  # noqa: S101 - asked for as a pipe above
        assert self._process.stdout is not None  # noqa: S101 - see above
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        os.set_blocking(self._stdout.fileno(), False)

    def send(self, **command: Any) -> None:
        """Send one command; raises OutboxError where the child has ended."""
        try:
            self._stdin.write(orjson.dumps(command) + b"\n")
        except BrokenPipeError:
            raise self._ended() from None

    def listen(self) -> None:
        """Take in what the child has told; raises OutboxError where it ended by itself."""
        while data := self._stdout.read(_CHUNK):
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            for line in lines:
                self.facts.update(orjson.loads(line))
        if self._process.poll() is not None and not self.facts.get("written"):
            raise self._ended()

    def _ended(self) -> OutboxError:
        code = self._process.wait()
        return OutboxError(
            f"the demo's {self.name} ended by itself with exit code {code}; {self._log} ends:\n"
            f"{tail(self._log, 8)}"
        )

    def close(self) -> None:
        """End the child; safe to call twice."""
        self._stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
