"""A server process on a leash: it ends when this process ends, however that happens."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from bridge.errors import LocalError
from bridge.local.identity import ProcessIdentity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bridge.local.account import Account

_LEASH = Path(__file__).with_name("leash.py")
_FREEZE_SECONDS = 5.0
_STACK_FRAMES = ("\tat ", "\t... ")


class LeashedProcess:
    """One running server, started through `leash.py`; its output goes to the end of `log`.

    `stop_signal` asks it to end in good order, `death_signal` is what the kernel sends when the
    leash itself is killed, `grace` is how many seconds an orphaned server has for each of the two.
    `environment` replaces this process's own.
    Raises LocalError where the program cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        account: Account | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
        death_signal: signal.Signals = signal.SIGKILL,
        grace: float = 10.0,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = Path(command[0]).name
        self.log = log
        plan = {
            "command": list(command),
            "log": str(log),
            "uid": account.uid if account else None,
            "gid": account.gid if account else None,
            "keep_reach": account.keep_reach if account else False,
            "stop_signal": int(stop_signal),
            "death_signal": int(death_signal),
            "grace": grace,
            "cwd": str(cwd or log.parent),
        }
        self._stop_signal = stop_signal
        self._leash = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_LEASH), json.dumps(plan)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            # Not part of the plan: a command line can be read by everybody.
            env=environment,
        )
        self.pid = self._read_pid()
        self.identity = ProcessIdentity.of(self.pid)

    def _read_pid(self) -> int:
        stdout = self._leash.stdout
        assert stdout is not None  # noqa: S101 - asked for as a pipe above
        with stdout:
            line = stdout.readline()
        answer = json.loads(line) if line else {"error": "the process that guards it ended"}
        if "pid" in answer:
            return int(answer["pid"])
        self._forget()
        raise LocalError(
            f"{self.name} could not be started: {answer['error']}. See {self.log} for its output."
        )

    @property
    def alive(self) -> bool:
        """Whether the server still runs (a suspended one does)."""
        return self.exit_code is None

    @property
    def exit_code(self) -> int | None:
        """The server's exit code, 128 + signal where a signal ended it, None while it runs."""
        code = self._leash.poll()
        if code is not None:
            self._forget()
        return code

    def family(self) -> list[psutil.Process]:
        """Return the server's own process first, then everything it started."""
        with contextlib.suppress(psutil.NoSuchProcess):
            if self.alive:
                server = psutil.Process(self.pid)
                return [server, *server.children(recursive=True)]
        return []

    def listens_on(self, port: int) -> bool:
        """Whether the server itself, not some other process, accepts connections on a TCP port."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return self.alive and any(
                one.status == psutil.CONN_LISTEN and one.laddr.port == port
                for one in psutil.Process(self.pid).net_connections("tcp")
            )
        return False

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the server's own process; nothing happens where it has ended."""
        if self.alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(self.pid).send_signal(number)

    def suspend(self) -> None:
        """Freeze the server with everything it started (SIGSTOP), and wait until it is frozen."""
        # The server itself first: a frozen one starts no new children.
        with contextlib.suppress(psutil.NoSuchProcess):
            for server in self.family()[:1]:
                _freeze(server)
        for process in self.family()[1:]:
            with contextlib.suppress(psutil.NoSuchProcess):
                _freeze(process)

    def resume(self) -> None:
        """Let a suspended server go on (SIGCONT)."""
        for process in reversed(self.family()):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()

    def kill(self) -> None:
        """End the server and everything it started at once (SIGKILL), and wait for it."""
        family = [ProcessIdentity.of(process.pid) for process in self.family()]
        for process in family:
            process.send(signal.SIGKILL)
        self.wait(10)
        wait_until_gone(family, timeout=10)

    def stop(self, number: signal.Signals | None = None, *, timeout: float = 30.0) -> None:
        """Ask the server to end and wait; after `timeout` seconds it is killed."""
        self.resume()
        self.send(self._stop_signal if number is None else number)
        if self.wait(timeout) is None:
            self.kill()

    def wait(self, timeout: float) -> int | None:
        """Return the exit code within `timeout` seconds, or None where the server still runs."""
        try:
            code = self._leash.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        self._forget()
        return code

    def _forget(self) -> None:
        if self._leash.stdin is not None:
            self._leash.stdin.close()
        self._leash.wait()

    def log_tail(self, lines: int = 8) -> str:
        """Return the last lines of the server's output, for error messages."""
        return tail(self.log, lines)


def tail(path: Path, lines: int) -> str:
    """Return the last lines of a log, without Java's stack frames; empty where there is none."""
    if not path.is_file():
        return ""
    told = path.read_text(errors="replace").splitlines()
    return "\n".join([line for line in told if not line.startswith(_STACK_FRAMES)][-lines:])


def _freeze(process: psutil.Process) -> None:
    process.suspend()
    deadline = time.monotonic() + _FREEZE_SECONDS
    while process.status() != psutil.STATUS_STOPPED and time.monotonic() < deadline:
        time.sleep(0.001)


def run_to_end(process: LeashedProcess, *, what: str, timeout: float) -> None:
    """Wait for a program that ends by itself; raises LocalError unless it succeeds."""
    code = process.wait(timeout)
    if code == 0:
        return
    if code is None:
        process.kill()
    outcome = "did not end in time" if code is None else f"failed with exit code {code}"
    raise LocalError(f"{what} {outcome}; the end of {process.log}:\n{process.log_tail()}")


def wait_until_gone(
    identities: Sequence[ProcessIdentity], timeout: float, *, collected: bool = False
) -> bool:
    """Wait until none of these processes runs any more; False where `timeout` seconds pass.

    With `collected` their parents must also have taken note, so that no list shows them.
    """
    deadline = time.monotonic() + timeout
    while any(one.listed if collected else one.alive for one in identities):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
