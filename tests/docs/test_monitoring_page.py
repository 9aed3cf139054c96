"""`docs/monitoring.md` has every monitoring view, what looks bad in it and what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bridge.database.schema_files import schema_directory

PAGE = Path(__file__).parents[2] / "docs" / "monitoring.md"
_BESIDE = {"outbox_throughput_by_destination": "outbox_throughput"}
"""Views that share another one's section."""


def made() -> list[str]:
    files = sorted((schema_directory() / "migrations").glob("*.up.sql"))
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    return re.findall(r'^create view :"schema"\.(\w+)', text, re.MULTILINE)


def sections() -> dict[str, str]:
    parts = re.split(r"^## `(\w+)`$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.parametrize("view", made())
def test_each_view_is_described(view: str) -> None:
    section = sections()[_BESIDE.get(view, view)]
    if view in _BESIDE:
        assert f"`{view}`" in section
    if view != "outbox_unsent":  # it is there to be filtered
        assert "- Looks bad: " in section
        assert "- Do: " in section


def test_no_view_is_described_that_does_not_exist() -> None:
    assert set(sections()) <= set(made())
