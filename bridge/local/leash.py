"""Run one server as a child that never outlives the process that asked for it.

A script of its own, run as `python -I -S leash.py '<json>'` with a pipe as its standard input:

* when the pipe closes, because its owner ended in whatever way, the server is stopped;
* when this process is killed itself, the kernel ends the server (Linux);
* when the server ends, this process ends with the server's exit code (128 + signal).

It prints one line of JSON: `{"pid": …}` of the server, or `{"error": …}`. A second process is
needed because the kernel ties "tell me when my parent dies" to the parent's *thread*, and a server
that changes its user loses that tie at the change; here it is set after the change, by a process
with a single thread.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_SECUREBITS = 28
_SECBIT_NO_SETUID_FIXUP = 1 << 2
_PR_SET_KEEPCAPS = 8
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_CAP_DAC_OVERRIDE = 1
_CAPABILITY_VERSION_3 = 0x20080522

_PARENT_CHECK_SECONDS = 2.0


def main() -> int:
    """Start the server that the first argument describes and stay until it has ended."""
    plan: dict[str, Any] = json.loads(sys.argv[1])
    owner = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)

    try:
        server = _start(plan, libc)
    except (OSError, subprocess.SubprocessError) as error:
        _say({"error": f"{plan['command'][0]}: {error}"})
        return 127
    _say({"pid": server.pid})

    while server.poll() is None:
        readable, _, _ = select.select([0, wake_read], [], [], _PARENT_CHECK_SECONDS)
        if wake_read in readable:
            os.read(wake_read, 4096)
        # The parent's id is a second witness: a copy of the pipe in some fork of the owner would
        # keep it open.
        if (0 in readable and not os.read(0, 4096)) or os.getppid() != owner:
            _stop(server, plan)
    code = server.returncode
    return code if code >= 0 else 128 - code


def _start(plan: dict[str, Any], libc: ctypes.CDLL | None) -> subprocess.Popen[bytes]:
    leash = os.getpid()

    def prepare() -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        if plan["uid"] is not None:
            _become(plan["uid"], plan["gid"], libc, keep_reach=plan["keep_reach"])
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, plan["death_signal"], 0, 0, 0)
            if os.getppid() != leash:
                os._exit(1)

    with Path(plan["log"]).open("ab") as log:
        return subprocess.Popen(
            plan["command"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=plan["cwd"],
            start_new_session=True,
            preexec_fn=prepare,  # noqa: PLW1509 - this process has one thread
        )


def _become(uid: int, gid: int, libc: ctypes.CDLL | None, *, keep_reach: bool) -> None:
    """Change to an ordinary user, who keeps only the right to pass closed folders, if asked."""
    os.setgroups([])
    os.setgid(gid)
    if libc is None or not keep_reach:
        os.setuid(uid)
        return
    libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)
    # Else access(2), by which PostgreSQL looks for its own programs, asks without the capability.
    libc.prctl(_PR_SET_SECUREBITS, _SECBIT_NO_SETUID_FIXUP, 0, 0, 0)
    os.setuid(uid)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    bit = 1 << _CAP_DAC_OVERRIDE
    # Effective, permitted and inheritable set; the upper 32 capabilities stay empty.
    data = (ctypes.c_uint32 * 6)(bit, bit, bit, 0, 0, 0)
    if libc.capset(header, data) == 0:
        libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_OVERRIDE, 0, 0)
    else:
        libc.capset(header, (ctypes.c_uint32 * 6)())  # or it went on with all that root may do


def _stop(server: subprocess.Popen[bytes], plan: dict[str, Any]) -> None:
    for number in (plan["stop_signal"], plan["death_signal"], signal.SIGKILL):
        server.send_signal(number)
        server.send_signal(signal.SIGCONT)
        try:
            server.wait(plan["grace"])
        except subprocess.TimeoutExpired:
            continue
        return


def _say(message: dict[str, Any]) -> None:
    try:
        os.write(1, json.dumps(message).encode() + b"\n")
    except OSError:
        return  # the owner is gone already; the pipe will say so
    # Nobody reads this pipe any more.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


if __name__ == "__main__":
    sys.exit(main())
