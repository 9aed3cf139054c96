"""The relays as real processes, one of which is killed while it has rows in flight."""

from __future__ import annotations

import signal
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

from bridge.errors import OutboxError
from bridge.local.process import LeashedProcess

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    from bridge.demo.observer import Observer

_STOP_SECONDS = 30.0
_ORPHAN_SECONDS = 1.0
"""Its database and broker have ended with the demo too, so there is nothing left to drain."""

_REST_SECONDS = 0.1
_REST_LIMIT_SECONDS = 5.0
_WATCH_SECONDS = 0.002
_PATIENCE_SECONDS = 3.0
"""How long the killer waits for the wished number of rows before it is content with fewer."""


class RelayProcess:
    """`outbox-bridge relay` with its defaults; its log goes to `<name>.log` in `folder`."""

    def __init__(self, name: str, *, folder: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.state = "off"
        self._log = folder / f"{name}.log"
        self._environment = environment
        self._process: LeashedProcess | None = None

    @property
    def pid(self) -> int:
        """Its process id; raises OutboxError while it is not running."""
        return self._running().pid

    def start(self) -> None:
        """Start it, or start it again."""
        self._process = LeashedProcess(
            [sys.executable, "-m", "bridge", "relay", "--name", self.name],
            log=self._log,
            environment=self._environment,
            grace=_ORPHAN_SECONDS,
        )
        self.state = "up"

    def check(self) -> None:
        """Raise OutboxError where it has ended by itself."""
        process = self._process
        if process is not None and not process.alive:
            raise OutboxError(
                f"{self.name} ended by itself with exit code {process.exit_code}; {self._log} "
                f"ends:\n{process.log_tail()}"
            )

    def freeze(self) -> None:
        """Stop it where it stands (SIGSTOP), so that its rows can be counted."""
        self._running().send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on (SIGCONT)."""
        self._running().send(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once (SIGKILL)."""
        self._running().kill()
        self._process = None
        self.state = "killed"

    def stop(self) -> bool:
        """Ask it to end (SIGTERM); tell whether it did so in good order."""
        process, self._process = self._process, None
        self.state = "off"
        if process is None:
            return True
        process.send(signal.SIGTERM)
        code = process.wait(_STOP_SECONDS)
        if code is None:
            process.kill()
        return code == 0

    def _running(self) -> LeashedProcess:
        if self._process is None:
            raise OutboxError(f"{self.name} is not running.")
        return self._process

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self.kill()


class Victim(Protocol):
    """A relay that can be frozen and killed; see RelayProcess."""

    @property
    def name(self) -> str:
        """The relay's name, as it is registered."""

    @property
    def pid(self) -> int:
        """Its process id; raises OutboxError while it is not running."""

    def start(self) -> None:
        """Start it again."""

    def freeze(self) -> None:
        """Stop it where it stands (SIGSTOP)."""

    def thaw(self) -> None:
        """Let it go on (SIGCONT)."""

    def kill(self) -> None:
        """End it at once (SIGKILL)."""


@dataclass(frozen=True, slots=True)
class Kill:
    """What the relay had claimed and not settled when it died, and when that was (monotonic)."""

    outbox_ids: frozenset[int]
    at: float


class Killer:
    """Kills a relay at a moment when it has rows in flight, and knows exactly which.

    The relay is frozen first, for a blink: while it runs, its rows come and go within milliseconds.
    """

    def __init__(self, relay: Victim, observer: Observer, wish: int) -> None:
        self._relay = relay
        self._observer = observer
        self._wish = wish
        self._began = time.monotonic()
        self.kills = 0

    def strike(self, seconds: float) -> Kill | None:
        """Watch for so many seconds; kill when enough rows are in flight. None: not yet."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if len(self._in_flight()) >= self._enough:
                self._relay.freeze()
                if len(self._come_to_rest()) >= self._enough:
                    return self._kill()
                self._relay.thaw()
            time.sleep(_WATCH_SECONDS)
        return None

    def _kill(self) -> Kill | None:
        pid = self._relay.pid
        at = time.monotonic()
        self._relay.kill()
        self.kills += 1
        # Whatever had reached the server still runs to its end; then the session goes.
        until = at + _REST_LIMIT_SECONDS
        while self._sessions()[0] and time.monotonic() < until:
            time.sleep(_WATCH_SECONDS)
        left = self._observer.in_flight(self._relay.name, pid)
        if not left:
            # Its last statement was under way all the same, and settled everything.
            self._relay.start()
            return None
        return Kill(frozenset(left), at)

    def _come_to_rest(self) -> list[int]:
        """Return the frozen relay's rows once its last statements are through."""
        left = self._in_flight()
        since = time.monotonic()
        limit = since + _REST_LIMIT_SECONDS
        while (now := time.monotonic()) < min(since + _REST_SECONDS, limit):
            time.sleep(_WATCH_SECONDS)
            before, left = left, self._in_flight()
            if left != before or self._sessions()[1]:
                since = now
        return left

    @property
    def _enough(self) -> int:
        return self._wish if time.monotonic() - self._began < _PATIENCE_SECONDS else 1

    def _in_flight(self) -> list[int]:
        return self._observer.in_flight(self._relay.name, self._relay.pid)

    def _sessions(self) -> tuple[int, int]:
        return self._observer.sessions(self._relay.name)
