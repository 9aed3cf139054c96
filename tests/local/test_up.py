"""`outbox-bridge local` on the broker of this run of the tests."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import psycopg
import pytest
from confluent_kafka.admin import AdminClient

from tests.fixtures.kafka import silent
from tests.fixtures.waiting import wait_until
from tests.local.conftest import processes_below

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.cli import RunCliFunction, StartCliFunction

# Java takes its time on a busy machine.
pytestmark = [pytest.mark.timeout(240), pytest.mark.usefixtures("uses_real_kafka")]

UP_SECONDS = 150.0


def exported(stdout: str) -> dict[str, str]:
    """Return the names and values of `export` lines, which must be all there is."""
    found: dict[str, str] = {}
    for line in stdout.splitlines():
        word, assignment = shlex.split(line)
        assert word == "export"
        name, _, value = assignment.partition("=")
        found[name] = value
    return found


def test_eval_of_a_detached_up_returns_with_both_settings(
    cli_env: dict[str, str], data: Path, tmp_path: Path
) -> None:
    script = (
        f'eval "$({shlex.quote(sys.executable)} -m bridge local up --detach --data "$1")" && '
        'printf "%s\\n%s\\n" "$OUTBOX_BRIDGE_DATABASE_URL" "$OUTBOX_BRIDGE_KAFKA_BOOTSTRAP_SERVERS"'
    )
    # Both streams are pipes: they are read to their end, so nothing may hold them open.
    done = subprocess.run(
        ["/bin/sh", "-c", script, "sh", str(data)],
        env=cli_env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=UP_SECONDS,
        check=True,
    )
    url, servers = done.stdout.split()
    with psycopg.connect(url) as connection:
        assert connection.execute("select 1").fetchone() == (1,)
    assert (
        AdminClient({"bootstrap.servers": servers}, logger=silent).list_topics(timeout=30).brokers
    )
    assert "is ready" in done.stderr


def test_down_leaves_no_process_and_keeps_the_data(run_cli: RunCliFunction, data: Path) -> None:
    first = exported(up(run_cli, data).stdout)
    assert list(first) == ["OUTBOX_BRIDGE_DATABASE_URL", "OUTBOX_BRIDGE_KAFKA_BOOTSTRAP_SERVERS"]
    with psycopg.connect(first["OUTBOX_BRIDGE_DATABASE_URL"]) as connection:
        connection.execute("create table kept as select 7 as number")
    # In a session of its own: neither a closed terminal nor its Ctrl-C reaches it.
    keeper = status_pids(run_cli, data)["keeper"]
    assert os.getsid(keeper) == keeper
    assert processes_below(data)

    down = run_cli("local", "down", "--data", str(data))

    assert processes_below(data) == []
    assert down.stdout == ""
    again = exported(up(run_cli, data).stdout)
    assert again["OUTBOX_BRIDGE_DATABASE_URL"] == first["OUTBOX_BRIDGE_DATABASE_URL"]
    with psycopg.connect(again["OUTBOX_BRIDGE_DATABASE_URL"]) as connection:
        assert connection.execute("select number from kept").fetchone() == (7,)


def test_a_killed_foreground_up_leaves_no_process(start_cli: StartCliFunction, data: Path) -> None:
    parent = start_cli("local", "up", "--data", str(data))
    wait_until(lambda: parent.stdout.count("\n") == 2, "up is ready", UP_SECONDS)

    parent.kill()

    wait_until(lambda: not processes_below(data), "every process has ended", 60)


def up(run_cli: RunCliFunction, data: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return run_cli("local", "up", "--detach", "--data", str(data), *more, timeout=UP_SECONDS)


def status_pids(run_cli: RunCliFunction, data: Path) -> dict[str, int]:
    table = run_cli("local", "status", "--data", str(data)).stdout.partition("process ")[2]
    rows = [line.split() for line in table.splitlines()[1:]]
    return {name: int(pid) for name, pid, _ in rows}
