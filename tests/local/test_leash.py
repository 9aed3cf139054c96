"""A leashed server ends with its owner, in whatever way that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from bridge.errors import LocalError
from bridge.local.identity import ProcessIdentity
from bridge.local.process import LeashedProcess, run_to_end
from tests.fixtures.waiting import wait_until
from tests.local.conftest import processes_below

if TYPE_CHECKING:
    from pathlib import Path

STUBBORN = "import signal, time\nfor n in (2, 15): signal.signal(n, signal.SIG_IGN)\n"
WAIT = "print('on', flush=True)\ntime.sleep(600)\n"


def python(tmp_path: Path, code: str, **options: object) -> LeashedProcess:
    command = [sys.executable, "-I", "-S", "-c", code]
    return LeashedProcess(command, log=tmp_path / "log", **options)  # type: ignore[arg-type]


def started(process: LeashedProcess) -> None:
    wait_until(lambda: "on" in process.log_tail(), "the server runs")


def test_stop_asks_and_returns_the_exit_code(tmp_path: Path) -> None:
    process = python(tmp_path, "import time\n" + WAIT)
    started(process)
    process.stop()
    assert not process.alive
    assert process.exit_code == 128 + signal.SIGTERM
    process.stop()
    process.kill()


def test_stop_kills_a_server_that_does_not_listen(tmp_path: Path) -> None:
    process = python(tmp_path, STUBBORN + WAIT)
    started(process)
    process.stop(timeout=0.2)
    assert process.exit_code == 128 + signal.SIGKILL


def test_a_suspended_server_can_be_stopped(tmp_path: Path) -> None:
    process = python(tmp_path, "import time\n" + WAIT)
    started(process)
    process.suspend()
    assert psutil.Process(process.pid).status() == psutil.STATUS_STOPPED
    process.stop()
    assert process.exit_code == 128 + signal.SIGTERM


@pytest.mark.parametrize("suspended", [False, True])
@pytest.mark.parametrize("code", ["import time\n", STUBBORN])
def test_a_server_ends_when_its_owner_is_killed(
    tmp_path: Path, code: str, *, suspended: bool
) -> None:
    owner = _owner(tmp_path, code)
    try:
        server = _wait_for_server(tmp_path)
        if suspended:
            os.kill(server.pid, signal.SIGSTOP)
        owner.kill()
        owner.wait()
        wait_until(lambda: not server.alive, "the server has ended")
        wait_until(lambda: not processes_below(tmp_path), "its leash has ended")
    finally:
        owner.kill()
        owner.wait()


def test_a_server_ends_when_its_leash_is_killed(tmp_path: Path) -> None:
    process = python(tmp_path, STUBBORN + WAIT)
    started(process)
    identity = process.identity
    leash = psutil.Process(process.pid).ppid()
    os.kill(leash, signal.SIGKILL)
    wait_until(lambda: not identity.alive, "the server has ended")
    assert not process.alive


def test_a_server_ends_when_owner_and_leash_are_killed_at_once(tmp_path: Path) -> None:
    owner = _owner(tmp_path, STUBBORN)
    try:
        server = _wait_for_server(tmp_path)
        leash = psutil.Process(server.pid).ppid()
        os.kill(leash, signal.SIGSTOP)
        owner.kill()
        owner.wait()
        assert server.alive
        os.kill(leash, signal.SIGKILL)
        wait_until(lambda: not server.alive, "the server has ended")
    finally:
        owner.kill()
        owner.wait()


def test_a_missing_program_is_said(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="no-such-program could not be started"):
        LeashedProcess([str(tmp_path / "no-such-program")], log=tmp_path / "log")


def test_a_failing_program_shows_the_end_of_its_output(tmp_path: Path) -> None:
    process = python(tmp_path, "import sys\nsys.exit('the disk is full')")
    with pytest.raises(LocalError, match=r"Trying failed with exit code 1(.|\n)*the disk is full"):
        run_to_end(process, what="Trying", timeout=30)


def test_a_program_that_hangs_is_ended(tmp_path: Path) -> None:
    process = python(tmp_path, STUBBORN + WAIT)
    started(process)
    with pytest.raises(LocalError, match="did not end in time"):
        run_to_end(process, what="Trying", timeout=0.1)
    assert not process.alive


def test_the_identity_of_an_ended_process_is_dead() -> None:
    child = psutil.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE)
    identity = ProcessIdentity.of(child.pid)
    assert identity.alive
    assert not ProcessIdentity(child.pid, "another start").alive
    child.communicate(b"\n")
    assert not identity.alive
    assert not ProcessIdentity.of(child.pid).alive


def _owner(tmp_path: Path, code: str) -> subprocess.Popen[bytes]:
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from bridge.local.process import LeashedProcess\n"
        f"command = [sys.executable, '-I', '-S', '-c', {code + WAIT!r}]\n"
        f"LeashedProcess(command, log=Path({str(tmp_path / 'log')!r}), grace=0.3)\n"
        "time.sleep(600)\n"
    )
    return subprocess.Popen([sys.executable, "-c", program])


def _wait_for_server(tmp_path: Path) -> ProcessIdentity:
    log = tmp_path / "log"
    wait_until(lambda: log.exists() and "on" in log.read_text(), "the server runs")
    found = [line for line in processes_below(tmp_path) if "leash.py" not in line]
    pids = [int(line.partition(":")[0]) for line in found if "LeashedProcess" not in line]
    assert len(pids) == 1, found
    return ProcessIdentity.of(pids[0])
