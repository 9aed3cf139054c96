"""The relay as users run it: a process of its own, with its defaults and the two settings."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from bridge.local.process import tail
from tests.bench.figures import BenchError
from tests.bench.processes import cpu_seconds, peak_mib

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

_SAMPLE = 0.05
_KEPT_VARIABLES = ("PATH", "HOME", "LANG", "TMPDIR")


@dataclass(frozen=True)
class Usage:
    """What a relay took over its whole life: seconds of wall clock and CPU, MiB at its largest."""

    seconds: float
    cpu_seconds: float
    peak_mib: float


class RelayProcess:
    """A running relay; leaving `with` ends it if it still runs.

    `folder` becomes its working folder and keeps its output (`log`), whose end is added to an error
    that passes; it must hold no settings file. `settings`: further variables.
    """

    def __init__(
        self,
        database_url: str,
        bootstrap_servers: str,
        *options: str,
        folder: Path,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.log = self._log = folder / "relay.log"
        # The kernel ends it with this process, however that ends.
        setpriv = shutil.which("setpriv")
        leash = [setpriv, "--pdeathsig", "KILL"] if setpriv else []
        environment = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        environment["OUTBOX_BRIDGE_DATABASE_URL"] = database_url
        environment["OUTBOX_BRIDGE_KAFKA_BOOTSTRAP_SERVERS"] = bootstrap_servers
        environment.update(settings or {})
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*leash, sys.executable, "-m", "bridge", "relay", *options],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._started = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(f"the relay's last words:\n{self._end()}")
        if self._process.returncode is None:
            self._process.kill()
            self._process.wait()

    def wait(self, timeout: float) -> Usage:
        """Wait until it ends by itself; raises BenchError after `timeout` s, or if it failed."""
        deadline = time.monotonic() + timeout
        peak = 0.0
        while True:
            peak = max(peak, peak_mib(self._process.pid))
            pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline:
                raise BenchError(f"the relay did not end within {timeout:.0f} s")
            time.sleep(_SAMPLE)
        seconds = time.monotonic() - self._started
        self._process.returncode = os.waitstatus_to_exitcode(status)
        if self._process.returncode:
            raise BenchError(f"the relay ended with exit code {self._process.returncode}")
        return Usage(seconds, usage.ru_utime + usage.ru_stime, peak)

    def cpu_seconds(self) -> float:
        """Return the CPU seconds that it has used so far."""
        return cpu_seconds(self._process.pid)

    def stop(self) -> Usage:
        """Ask it to stop (SIGTERM) and wait; raises BenchError where it does not, or failed."""
        self._process.send_signal(signal.SIGTERM)
        return self.wait(60)

    def _end(self) -> str:
        return tail(self._log, 15)
