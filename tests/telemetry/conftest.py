from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from pathlib import Path


class PromtoolFunction(Protocol):
    def __call__(
        self, *args: str, stdin: str | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
def promtool() -> PromtoolFunction:
    """Run Prometheus' own checker."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed; as root run: apt-get install -y prometheus")

    def run(
        *args: str, stdin: str | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, *args], input=stdin, cwd=cwd, capture_output=True, text=True, check=False
        )

    return run
