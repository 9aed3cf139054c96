"""The table on screen and the JSON file."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bench.figures import Figure, Findings

FOLDER = Path(__file__).resolve().parents[2] / "bench-results"
_PLAIN_WIDTH = 120


def write_json(described: dict[str, Any], findings: Sequence[Findings]) -> Path:
    """Write everything, single runs included, below bench-results/ and return the file."""
    FOLDER.mkdir(exist_ok=True)
    file = FOLDER / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    benches = {
        each.bench: {"figures": [one.as_dict() for one in each.figures], "runs": each.runs}
        for each in findings
    }
    file.write_text(
        json.dumps({**described, "benches": benches}, indent=2, ensure_ascii=False) + "\n"
    )
    return file


def print_table(described: dict[str, Any], findings: Sequence[Findings]) -> None:
    """Print the machine and one line for each figure, on stdout."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PLAIN_WIDTH)
    for name, value in described.items():
        console.print(f"{name}: {_plain(value)}", markup=False, soft_wrap=True)
    table = Table("bench", "figure", show_lines=False)
    table.add_column("median", justify="right")
    table.add_column("runs", justify="right")
    table.add_column("to reach", justify="right")
    table.add_column("")
    for each in findings:
        for number, figure in enumerate(each.figures):
            table.add_row(
                each.bench if number == 0 else "",
                figure.name,
                f"{_number(figure.value)} {figure.unit}",
                " ".join(map(_number, figure.samples)) if len(figure.samples) > 1 else "",
                str(figure.goal or ""),
                _verdict(figure),
            )
        table.add_section()
    console.print(table)


def _verdict(figure: Figure) -> str:
    if figure.kept is None:
        return ""
    return "[green]reached[/]" if figure.kept else "[red]missed[/]"


def _number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={_plain(one)}" for name, one in value.items())
    if isinstance(value, list):
        return " ".join(map(str, value))
    return str(value)
