"""CPU time and memory of processes, read from the kernel (Linux)."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_UTIME = 11  # of /proc/PID/stat, counted behind the program's name; then stime, cutime, cstime
_RETRIES = 20


def _times(pid: int) -> tuple[float, float]:
    """Return a process's own CPU seconds, and those of its children that have ended."""
    stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    fields = stat.rpartition(")")[2].split()
    user, system, child_user, child_system = (int(x) / _TICKS for x in fields[_UTIME : _UTIME + 4])
    return user + system, child_user + child_system


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds that a process, all of its threads, has used so far."""
    return _times(pid)[0]


def family_cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process and its children, the ended ones included.

    PostgreSQL's backends are children of the postmaster, which inherits their time when they end.
    """
    for _ in range(_RETRIES):
        own, ended = _times(pid)
        living = 0.0
        for child in _children(pid):
            try:
                living += cpu_seconds(child)
            except (FileNotFoundError, ProcessLookupError):
                break
        else:
            # A child that ended meanwhile would be counted twice.
            if _times(pid)[1] == ended:
                return own + ended + living
    raise RuntimeError(f"the children of process {pid} end too fast to be counted")


def _children(pid: int) -> list[int]:
    return [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]


def peak_mib(pid: int) -> float:
    """Return the largest resident size of a process since its program started, in MiB.

    Not from rusage, where a child starts with the size of the process that forked it. 0 where the
    process has ended.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0
