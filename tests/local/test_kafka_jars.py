"""Kafka's jars are fetched once, whole or not at all; a stand-in takes Maven's place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.waiting import wait_until
from tests.local.conftest import processes_below

if TYPE_CHECKING:
    from pathlib import Path

FETCH = "from bridge.local.kafka_jars import ensure_jars\nprint(ensure_jars(lambda text: None))"
FIND_TARGET = "for word; do case $word in -DoutputDirectory=*) jars=${word#*=};; esac; done\n"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "bin").mkdir()
    return {
        **os.environ,
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PATH": os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]]),
    }


def maven(tmp_path: Path, script: str) -> None:
    program = tmp_path / "bin" / "mvn"
    program.write_text(f"#!/bin/sh\n{FIND_TARGET}{script}\n")
    program.chmod(0o755)


def fetch(env: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", FETCH],
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def jar_folders(tmp_path: Path) -> list[str]:
    return [path.name for path in (tmp_path / "cache" / "outbox-bridge").iterdir() if path.is_dir()]


def test_processes_at_the_same_moment_download_once(tmp_path: Path, env: dict[str, str]) -> None:
    maven(tmp_path, f'echo run >> "{tmp_path}/runs"; mkdir "$jars"; sleep 0.3; touch "$jars/a.jar"')
    several = [fetch(env) for _ in range(3)]
    answers = {process.communicate(timeout=60)[0] for process in several}
    assert len(answers) == 1
    assert os.listdir(answers.pop().strip()) == ["a.jar"]  # noqa: PTH208 - names are compared
    assert (tmp_path / "runs").read_text() == "run\n"


def test_a_failed_download_says_why_and_leaves_nothing(tmp_path: Path, env: dict[str, str]) -> None:
    maven(
        tmp_path, 'mkdir "$jars"; touch "$jars/half.jar"; echo "[ERROR] no route to host"; exit 1'
    )
    process = fetch(env)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "no route to host" in errors
    assert "OUTBOX_BRIDGE_LOCAL_KAFKA=mock" in errors
    assert jar_folders(tmp_path) == []


def test_a_killed_download_leaves_no_process_and_no_half_folder(
    tmp_path: Path, env: dict[str, str]
) -> None:
    maven(tmp_path, f'mkdir "$jars"; touch "{tmp_path}/started"; exec sleep 600')
    process = fetch(env)
    wait_until((tmp_path / "started").exists, "the download has started")
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    wait_until(lambda: not processes_below(tmp_path), "the download has ended")

    maven(tmp_path, 'mkdir "$jars"; touch "$jars/a.jar"')
    again = fetch(env)
    folder, _ = again.communicate(timeout=60)
    assert os.listdir(folder.strip()) == ["a.jar"]  # noqa: PTH208 - names are compared
