"""Who runs in which data folder: found again, side by side, ended exactly, also after a crash.

On librdkafka's mock cluster, which starts fast: the question is about processes, not about Kafka.
"""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import psutil
import psycopg
import pytest

from bridge.local.identity import ProcessIdentity
from bridge.local.state import StateFile
from tests.fixtures.waiting import wait_until
from tests.local.conftest import processes_below

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from tests.fixtures.cli import RunCliFunction, StartCliFunction


@pytest.fixture(autouse=True)
def _mock_cluster(cli_env: dict[str, str]) -> None:
    cli_env["OUTBOX_BRIDGE_LOCAL_KAFKA"] = "mock"


def up(run_cli: RunCliFunction, data: Path) -> str:
    return run_cli("local", "up", "--detach", "--data", str(data)).stdout


def status(run_cli: RunCliFunction, data: Path) -> dict[str, Any]:
    answer = run_cli("local", "status", "--json", "--data", str(data), check=False)
    assert answer.returncode in (0, 3)
    facts: dict[str, Any] = json.loads(answer.stdout)
    assert facts["running"] is (answer.returncode == 0)
    return facts


def pids(facts: dict[str, Any]) -> dict[str, int]:
    return {process["name"]: process["pid"] for process in facts["processes"]}


def test_a_second_up_finds_the_first(run_cli: RunCliFunction, data: Path) -> None:
    first = up(run_cli, data)
    before = pids(status(run_cli, data))

    second = run_cli("local", "up", "--data", str(data))

    assert second.stdout == first
    assert "already running" in second.stderr
    assert pids(status(run_cli, data)) == before
    assert run_cli("local", "env", "--data", str(data)).stdout == first


def test_ups_at_the_same_moment_start_one(start_cli: StartCliFunction, data: Path) -> None:
    several = [start_cli("local", "up", "--detach", "--data", str(data)) for _ in range(4)]
    assert [process.wait() for process in several] == [0, 0, 0, 0]
    assert len({process.stdout for process in several}) == 1
    assert sum("starting PostgreSQL" in process.stderr for process in several) == 1
    assert sum("already running" in process.stderr for process in several) == 3


def test_a_foreground_up_ends_with_an_interrupt(start_cli: StartCliFunction, data: Path) -> None:
    process = start_cli("local", "up", "--data", str(data))
    wait_until(lambda: process.stdout.count("\n") == 2, "up is ready", 60)

    process.send(signal.SIGINT)

    assert process.wait() == 0
    assert processes_below(data) == []
    assert all(line.startswith("export ") for line in process.stdout.splitlines())


def test_down_ends_a_foreground_up(
    run_cli: RunCliFunction, start_cli: StartCliFunction, data: Path
) -> None:
    process = start_cli("local", "up", "--data", str(data))
    wait_until(lambda: process.stdout.count("\n") == 2, "up is ready")
    run_cli("local", "down", "--data", str(data))
    assert process.wait() == 0
    assert processes_below(data) == []


def test_two_data_folders_run_side_by_side(
    run_cli: RunCliFunction, data: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other parts; $HOME"
    first, second = up(run_cli, data), up(run_cli, other)
    try:
        assert first != second
        run_cli("local", "down", "--data", str(data))
        assert processes_below(data) == []
        assert status(run_cli, other)["ready"] is True
        assert run_cli("local", "env", "--data", str(other)).stdout == second
    finally:
        run_cli("local", "down", "--data", str(other))
    assert processes_below(other) == []


def test_down_where_nothing_runs_is_no_error(run_cli: RunCliFunction, data: Path) -> None:
    answer = run_cli("local", "down", "--json", "--data", str(data))
    assert json.loads(answer.stdout) == {"data": str(data), "stopped": False}
    assert not data.exists()


def test_env_where_nothing_runs_prints_nothing(run_cli: RunCliFunction, data: Path) -> None:
    answer = run_cli("local", "env", "--data", str(data), check=False)
    assert answer.returncode == 3
    assert answer.stdout == ""
    assert "local up" in answer.stderr


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_down_ends_everything_whatever_became_of_the_keeper(
    run_cli: RunCliFunction, data: Path, number: signal.Signals
) -> None:
    up(run_cli, data)
    os.kill(pids(status(run_cli, data))["keeper"], number)

    run_cli("local", "down", "--data", str(data), timeout=100)

    # Without a keeper nobody waits for a server's leash, which ends just behind it.
    wait_until(lambda: not processes_below(data), "every process has ended")


def test_a_killed_keeper_leaves_no_process_and_up_starts_again(
    run_cli: RunCliFunction, data: Path
) -> None:
    first = up(run_cli, data)
    os.kill(pids(status(run_cli, data))["keeper"], signal.SIGKILL)
    wait_until(lambda: not processes_below(data), "every process has ended")
    assert status(run_cli, data)["running"] is False

    # The broker is in memory and elsewhere now; the database is where it was.
    assert up(run_cli, data).splitlines()[0] == first.splitlines()[0]


def test_a_server_that_ends_takes_the_rest_with_it_and_status_says_why(
    run_cli: RunCliFunction, data: Path
) -> None:
    up(run_cli, data)
    os.kill(pids(status(run_cli, data))["postgres"], signal.SIGKILL)
    wait_until(lambda: not processes_below(data), "every process has ended")
    assert "postgres ended by itself" in status(run_cli, data)["error"]
    up(run_cli, data)
    assert status(run_cli, data)["error"] is None


def test_down_never_ends_a_process_that_got_the_number_of_ours(
    run_cli: RunCliFunction, data: Path
) -> None:
    up(run_cli, data)
    kept = (data / "state.json").read_text()
    run_cli("local", "down", "--data", str(data))
    # As after a reboot: the file is there, and its numbers belong to somebody else.
    facts = json.loads(kept)
    other = psutil.Popen(["sleep", "600"])
    try:
        for identity in (facts["keeper"], *facts["servers"].values()):
            identity["pid"] = other.pid
        (data / "state.json").write_text(json.dumps(facts))
        assert status(run_cli, data)["running"] is False

        run_cli("local", "down", "--data", str(data))

        assert other.is_running()
        assert ProcessIdentity.of(other.pid).alive
    finally:
        other.kill()
        other.wait()


def test_a_broken_state_file_is_as_good_as_none(run_cli: RunCliFunction, data: Path) -> None:
    data.mkdir()
    for content in ("", "{", "[]", '{"keeper": 1, "servers": {}}', '{"keeper": {}}'):
        (data / "state.json").write_text(content)
        assert StateFile(data).read() is None
    assert status(run_cli, data)["running"] is False
    assert up(run_cli, data)


def test_only_the_owner_can_read_the_password(run_cli: RunCliFunction, data: Path) -> None:
    up(run_cli, data)
    secret = status(run_cli, data)["database_url"].partition("postgres:")[2].partition("@")[0]
    for path in data.rglob("*"):
        if path.is_file() and secret.encode() in path.read_bytes():
            assert path.stat().st_mode & 0o077 == 0, path


def test_the_database_refuses_who_does_not_know_the_password(
    run_cli: RunCliFunction, data: Path
) -> None:
    up(run_cli, data)
    url = status(run_cli, data)["database_url"]
    secret = url.partition("postgres:")[2].partition("@")[0]
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(url.replace(secret, "wrong"))


def test_a_data_folder_that_cannot_be_made_is_said(run_cli: RunCliFunction, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    answer = run_cli("local", "up", "--detach", "--data", str(tmp_path / "file" / "x"), check=False)
    assert answer.returncode == 1
    assert "--data" in answer.stderr
    assert "Traceback" not in answer.stderr
