"""`docs/runbook.md` has a section on each check of the doctor, and each check has its section."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bridge.doctor import CHECKS

PAGE = Path(__file__).parents[2] / "docs" / "runbook.md"
LINK = re.compile(r"\[[^\]]*\]\(([^)#]+)(?:#[^)]*)?\)")


def half() -> str:
    """Return the part under "Verdicts of doctor"."""
    text = PAGE.read_text(encoding="utf-8")
    (part,) = re.findall(r"^## Verdicts of doctor$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return str(part)


def sections() -> dict[str, str]:
    parts = re.split(r"^### (.+)$", half(), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_page_and_checks_are_the_same_in_the_same_order() -> None:
    assert list(sections()) == list(CHECKS)


@pytest.mark.parametrize("check", CHECKS)
def test_each_section_says_what_it_means_where_to_look_and_what_to_do(check: str) -> None:
    said = re.findall(r"^- \*\*(.+?):\*\* (?=\S)", sections()[check], re.MULTILINE)
    assert said == ["Problem", "Unknown", "Look", "Do"]


def test_every_link_leads_to_a_file() -> None:
    targets = [target for target in LINK.findall(half()) if "://" not in target]
    assert targets
    assert [t for t in targets if not (PAGE.parent / t).resolve().is_file()] == []
