"""The shop's processes: each is started anew when it ends, as a service manager would do."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Self

import httpx

from bridge.errors import LocalError, OutboxError
from bridge.local.kafka import LocalKafka
from bridge.local.process import LeashedProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from bridge.local.parts import LocalParts
    from bridge.local.postgres import LocalPostgres

_STOP_SECONDS = 20.0
_ORPHAN_SECONDS = 1.0
"""Its servers have ended with the demo too, so there is nothing left to finish."""
_PAUSE_SECONDS = 0.3
_MOST_FAILURES = 20
"""Ends by itself, with an error, after which a member counts as broken."""
_SIGNALLED = 128
_ASKED_TO_END = (0, _SIGNALLED + signal.SIGTERM)
_KILLED = (_SIGNALLED + signal.SIGKILL, -signal.SIGKILL)
_HEALTH_SECONDS = 1.0


class Member:
    """One process; its output goes to `<name>.log` in `folder`.

    `health` is the URL that answers once it can be used; None where nobody calls it.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        health: str | None = None,
    ) -> None:
        self.name = name
        self.state = "off"
        self.kills = 0
        """Times that it was ended by a signal that it had not been asked to end by."""
        self._command = list(command)
        self._log = folder / f"{name}.log"
        self._environment = environment
        self._health = health
        self._process: LeashedProcess | None = None
        self._failures = 0
        self._not_before = 0.0

    @property
    def pid(self) -> int:
        """Its process id; raises OutboxError while it is not running."""
        return self._running().pid

    @property
    def is_ready(self) -> bool:
        """Whether it can be used: it answers its health check, if it has one."""
        if self._process is None or not self._process.alive:
            return False
        if self._health is None:
            return True
        try:
            return httpx.get(self._health, timeout=_HEALTH_SECONDS).is_success
        except httpx.HTTPError:
            return False

    def start(self) -> None:
        """Start it, or start it again; nothing happens while it runs."""
        if self._process is not None and self._process.alive:
            return
        self._process = LeashedProcess(
            self._command,
            log=self._log,
            environment=self._environment,
            grace=_ORPHAN_SECONDS,
        )
        self.state = "up"

    def keep(self) -> bool:
        """Start it again where it has ended; True where it had to be.

        Raises OutboxError where it fails again and again.
        """
        process = self._process
        if process is None:
            return False
        code = process.exit_code
        if code is None:
            return False
        if self.state == "up":
            self.state = "down"
            self._not_before = time.monotonic() + _PAUSE_SECONDS
            if code < 0 or code > _SIGNALLED:
                self.kills += 1
            else:
                self._failures += 1
        if self._failures > _MOST_FAILURES:
            raise OutboxError(
                f"the demo's {self.name} ended by itself {self._failures} times, now with exit "
                f"code {code}; {self._log} ends:\n{process.log_tail()}"
            )
        if time.monotonic() < self._not_before:
            return False
        self._process = None
        self.start()
        return True

    def freeze(self) -> None:
        """Stop it where it stands (SIGSTOP), so that its rows can be counted."""
        self._running().send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on (SIGCONT)."""
        self._running().send(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once (SIGKILL); `start` is for who kills it."""
        self._running().kill()
        self._process = None
        self.state = "killed"
        self.kills += 1

    def ask_to_stop(self) -> None:
        """Send SIGTERM; nothing happens where it does not run."""
        if self._process is not None:
            self._process.send(signal.SIGTERM)

    def stop(self) -> bool:
        """Ask it to end and wait for it; tell whether it did so in good order.

        One that somebody else killed meanwhile could not, and counts as killed.
        """
        process, self._process = self._process, None
        self.state = "off"
        if process is None:
            return True
        process.send(signal.SIGTERM)
        code = process.wait(_STOP_SECONDS)
        if code is None:
            process.kill()
            return False
        if code in _KILLED:
            self.kills += 1
        return code in (*_ASKED_TO_END, *_KILLED)

    def close(self) -> None:
        """End it at once, however it is; safe to call twice."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()

    def _running(self) -> LeashedProcess:
        if self._process is None:
            raise OutboxError(f"{self.name} is not running.")
        return self._process


def _runs(postgres: LocalPostgres) -> bool:
    try:
        return postgres.process.alive
    except LocalError:
        return False


def _started(start: Callable[[], None]) -> bool:
    """Try to start; what a killed server has left behind may need a moment to go."""
    try:
        start()
    except LocalError:
        return False
    return True


class Company:
    """All members in the order in which they start, and the servers that were started here."""

    def __init__(self, members: Sequence[Member], parts: LocalParts) -> None:
        self.members = {member.name: member for member in members}
        self.server_kills = 0
        self._parts = parts

    def __getitem__(self, name: str) -> Member:
        return self.members[name]

    @property
    def kills(self) -> int:
        """Processes that were killed, by whomever."""
        return sum(member.kills for member in self.members.values()) + self.server_kills

    def start(self) -> None:
        """Start everybody; `is_ready` tells when they can be used."""
        for member in self.members.values():
            member.start()

    @property
    def is_ready(self) -> bool:
        """Whether everybody can be used."""
        return all(member.is_ready for member in self.members.values())

    def keep(self) -> list[str]:
        """Start again whatever has ended, and name it. Raises OutboxError for what is broken."""
        again = self._keep_servers()
        return again + [member.name for member in self.members.values() if member.keep()]

    def stop(self) -> list[str]:
        """Ask everybody to end, wait, and name those that did not do so in good order."""
        for member in self.members.values():
            member.ask_to_stop()
        return [member.name for member in self.members.values() if not member.stop()]

    def _keep_servers(self) -> list[str]:
        postgres, kafka = self._parts.postgres, self._parts.kafka
        again = []
        if postgres is not None and not _runs(postgres):
            postgres.kill()
            if _started(postgres.start):
                again.append("PostgreSQL")
        if isinstance(kafka, LocalKafka) and not all(node.running for node in kafka.nodes):
            kafka.recover()
            again.append("Kafka")
        self.server_kills += len(again)
        return again

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for member in self.members.values():
            member.close()
