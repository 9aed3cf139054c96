"""Which Kafka `local up` starts, and that it says so where it is only a stand-in."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.cli import RunCliFunction


def up(
    run_cli: RunCliFunction, data: Path, *, check: bool = True, **env: str
) -> subprocess.CompletedProcess[str]:
    return run_cli("local", "up", "--detach", "--json", "--data", str(data), env=env, check=check)


def test_the_mock_cluster_is_said_on_screen_and_in_json(
    run_cli: RunCliFunction, data: Path
) -> None:
    answer = up(run_cli, data, OUTBOX_BRIDGE_LOCAL_KAFKA="mock")
    facts = json.loads(answer.stdout)
    assert facts["broker"] == "librdkafka mock"
    assert facts["mock"] is True
    assert "mock cluster instead of Kafka" in answer.stderr
    assert "librdkafka mock" in run_cli("local", "status", "--data", str(data)).stdout


def test_without_java_auto_is_the_mock_cluster_and_says_why(
    run_cli: RunCliFunction, data: Path, tmp_path: Path
) -> None:
    answer = up(run_cli, data, OUTBOX_BRIDGE_LOCAL_KAFKA="auto", PATH=str(tmp_path))
    assert json.loads(answer.stdout)["mock"] is True
    assert "no `java`" in answer.stderr


def test_without_java_real_fails_with_the_next_step(
    run_cli: RunCliFunction, data: Path, tmp_path: Path
) -> None:
    answer = up(run_cli, data, check=False, OUTBOX_BRIDGE_LOCAL_KAFKA="real", PATH=str(tmp_path))
    assert answer.returncode == 1
    assert answer.stdout == ""
    assert "openjdk-17-jre-headless" in answer.stderr
    assert "OUTBOX_BRIDGE_LOCAL_KAFKA=mock" in answer.stderr


def test_an_old_java_does_not_count(run_cli: RunCliFunction, data: Path, tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    answer = up(run_cli, data, check=False, OUTBOX_BRIDGE_LOCAL_KAFKA="real", PATH=path)
    assert answer.returncode == 1
    assert "11.0.2" in answer.stderr


def test_given_servers_are_not_started_and_come_out_quoted(
    cli_env: dict[str, str], data: Path, tmp_path: Path
) -> None:
    url = "postgresql://me:p$HOME`id`'\"%20@db.example:5432/shop?application_name=a%20b"
    env = {
        **cli_env,
        "OUTBOX_BRIDGE_LOCAL_DATABASE_URL": url,
        "OUTBOX_BRIDGE_LOCAL_BOOTSTRAP_SERVERS": "one.example:9092,two.example:9092",
    }
    script = (
        f'eval "$({shlex.quote(sys.executable)} -m bridge local up --detach --data "$1")" && '
        'printf "%s\\n%s" "$OUTBOX_BRIDGE_DATABASE_URL" "$OUTBOX_BRIDGE_KAFKA_BOOTSTRAP_SERVERS"'
    )
    done = subprocess.run(
        ["/bin/sh", "-c", script, "sh", str(data)],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == f"{url}\none.example:9092,two.example:9092"
    assert "p$HOME" not in done.stderr


def test_two_brokers_are_refused_as_usage(run_cli: RunCliFunction, data: Path) -> None:
    answer = run_cli("local", "up", "--brokers", "2", "--data", str(data), check=False)
    assert answer.returncode == 2
