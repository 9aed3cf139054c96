"""`docs/failures.md`: each row of its tables links the test that makes the fault, and it exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "failures.md"
LINK = re.compile(r"\[[^\]]*\]\(([^)#]+)(?:#[^)]*)?\)")


def rows() -> list[str]:
    """Return the rows of all tables, without headings and rules."""
    lines = PAGE.read_text().splitlines()
    return [
        line
        for line in lines
        if line.startswith("| ") and not line.startswith(("| what breaks |", "|---"))
    ]


def test_every_link_leads_to_a_file() -> None:
    targets = [target for target in LINK.findall(PAGE.read_text()) if "://" not in target]
    assert targets
    missing = [target for target in targets if not (PAGE.parent / target).resolve().is_file()]
    assert missing == []


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.split("|")[1].strip()[:40])
def test_each_row_has_no_empty_cell_and_links_its_test(row: str) -> None:
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert len(cells) == 4
    assert all(cells)
    assert any(target.startswith("../tests/") for target in LINK.findall(row)), row
