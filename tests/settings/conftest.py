from __future__ import annotations

import os
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from pathlib import Path

# A shared machine may stall any example; no test asserts absolute time.
hypothesis.settings.register_profile("suite", deadline=None)
hypothesis.settings.load_profile("suite")


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings of the caller: neither from the environment nor from a file in the folder."""
    for name in list(os.environ):
        if name.startswith("OUTBOX_BRIDGE_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
