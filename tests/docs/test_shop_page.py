"""`docs/shop.md` shows code and files that are there."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_PAGE = (_ROOT / "docs" / "shop.md").read_text()


def test_every_snippet_stands_in_the_shops_code() -> None:
    sources = [path.read_text() for path in (_ROOT / "bridge" / "demo" / "shop").glob("*.py")]
    code = "\n".join(textwrap.dedent(line) for source in sources for line in source.splitlines())
    snippets = re.findall(r"```python\n(.*?)```", _PAGE, re.DOTALL)
    assert len(snippets) == 2
    for snippet in snippets:
        lines = "\n".join(textwrap.dedent(line) for line in snippet.strip().splitlines())
        assert lines in code


def test_the_checks_on_the_page_are_those_of_the_verdict() -> None:
    from bridge.demo.shop.verdict import judge  # noqa: PLC0415 - loads the demo
    from tests.demo.shop.test_figures import GOOD  # noqa: PLC0415 - likewise

    for check in judge(GOOD):
        assert f" {check.claim} (" in _PAGE
