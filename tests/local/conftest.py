"""Fixtures of the tests of local parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil
import pytest

from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fixtures.cli import RunCliFunction


def processes_below(folder: Path) -> list[str]:
    """Return every process that works in this folder or has it on its command line."""
    found: list[str] = []
    for process in psutil.process_iter():
        try:
            words = " ".join(process.cmdline())
            place = process.cwd()
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        if str(folder) in words or place == str(folder) or place.startswith(f"{folder}/"):
            found.append(f"{process.pid}: {words}")
    return found


@pytest.fixture
def data(tmp_path: Path, run_cli: RunCliFunction) -> Iterator[Path]:
    """A data folder for `local up`; what runs in it is ended with the test."""
    folder = tmp_path / "parts"
    yield folder
    run_cli("local", "down", "--data", str(folder), check=False)
    wait_until(lambda: not processes_below(folder), "every process has ended")
