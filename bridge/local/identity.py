"""Which process a stored process id meant: an id alone may have been given to another since."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    import signal

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_START_TICKS_FIELD = 19  # of /proc/PID/stat, counted behind the program's name


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process id with the moment the process started, comparable across reboots.

    On Linux the moment is the boot's id and the clock ticks since that boot: unlike a time of day,
    neither moves when the clock is set.
    """

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity:
        """Return the identity of a process that runs now; `started` is empty where none does."""
        return cls(pid, _started(pid))

    @property
    def alive(self) -> bool:
        """Whether this very process runs (a zombie that nobody has collected does not)."""
        if not self.listed:
            return False
        try:
            return bool(psutil.Process(self.pid).status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False

    @property
    def listed(self) -> bool:
        """Whether the system still lists this very process, be it a zombie."""
        return bool(self.started) and _started(self.pid) == self.started

    def send(self, number: signal.Signals) -> None:
        """Send a signal to this very process; nothing happens where it has ended."""
        if self.alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(self.pid).send_signal(number)


def _started(pid: int) -> str:
    if _BOOT_ID.exists():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        except OSError:
            return ""
        ticks = stat.rpartition(")")[2].split()[_START_TICKS_FIELD]
        return f"{_BOOT_ID.read_text().strip()}:{ticks}"
    try:
        return f"{psutil.Process(pid).create_time():.2f}"
    except psutil.NoSuchProcess:
        return ""
