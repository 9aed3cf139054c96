"""What commands print: results on stdout as tables or JSON, notes and progress on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TextIO

import orjson

Cell = str | int | float | None
"""A table's cell; None is shown as a dash."""


class Output:
    """Writes a command's result to stdout and everything else to stderr.

    Tables are drawn by rich on a terminal and are plain aligned text elsewhere. `NO_COLOR` is
    honoured. With `as_json` the caller writes one JSON document and no table.
    """

    def __init__(
        self, *, as_json: bool = False, stdout: TextIO | None = None, stderr: TextIO | None = None
    ) -> None:
        self.as_json = as_json
        self._out = stdout or sys.stdout
        self._err = stderr or sys.stderr

    @property
    def is_terminal(self) -> bool:
        """Tell whether a person reads stdout."""
        return self._out.isatty()

    def json(self, value: Any) -> None:
        """Write one JSON document: times in ISO 8601, UUIDs as text."""
        options = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS
        data = orjson.dumps(value, default=_plain, option=options)
        self._out.write(data.decode() + "\n")

    def line(self, text: str = "") -> None:
        """Write one line of the result."""
        self._out.write(text + "\n")

    def text(self, text: str) -> None:
        """Write text of several lines; other control characters are escaped."""
        for part in text.split("\n"):
            self.line(printable(part.replace("\t", "    ")))

    def note(self, text: str) -> None:
        """Write one line beside the result."""
        self._err.write(text + "\n")
        self._err.flush()

    def table(
        self, columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, title: str | None = None
    ) -> None:
        """Write a table; columns that hold only numbers are aligned to the right."""
        cells = [[_text(cell) for cell in row] for row in rows]
        right = [
            bool(cells) and all(_is_number(row[index]) for row in cells)
            for index in range(len(columns))
        ]
        if self.is_terminal:
            self._rich_table(columns, cells, right, title)
        else:
            self._plain_table(columns, cells, right, title)

    def pairs(self, pairs: Mapping[str, Cell], *, title: str | None = None) -> None:
        """Write names and values, one pair a line."""
        if self.is_terminal:
            self._rich_table(None, [[k, _text(v)] for k, v in pairs.items()], [False] * 2, title)
            return
        if title:
            self.line(title)
        width = max((len(name) for name in pairs), default=0)
        for name, value in pairs.items():
            self.line(f"{name:<{width}}  {_text(value)}".rstrip())

    def _plain_table(
        self,
        columns: Sequence[str],
        cells: list[list[str]],
        right: list[bool],
        title: str | None,
    ) -> None:
        if title:
            self.line(title)
        widths = [max(len(row[i]) for row in [list(columns), *cells]) for i in range(len(columns))]
        for row in [list(columns), *cells]:
            padded = (
                text.rjust(width) if to_right else text.ljust(width)
                for text, width, to_right in zip(row, widths, right, strict=True)
            )
            self.line("  ".join(padded).rstrip())

    def _rich_table(
        self,
        columns: Sequence[str] | None,
        cells: list[list[str]],
        right: list[bool],
        title: str | None,
    ) -> None:
        # Only a person at a terminal waits for rich.
        from rich import box  # noqa: PLC0415 - see above
        from rich.console import Console  # noqa: PLC0415 - see above
        from rich.table import Table  # noqa: PLC0415 - see above
        from rich.text import Text  # noqa: PLC0415 - see above

        table = Table(
            box=box.SIMPLE_HEAD,
            show_header=columns is not None,
            title=title,
            title_justify="left",
            pad_edge=False,
        )
        for index, to_right in enumerate(right):
            table.add_column(
                columns[index] if columns is not None else "",
                justify="right" if to_right else "left",
                overflow="fold",
                style="bold" if columns is None and index == 0 else "",
            )
        for row in cells:
            # Text, not str: a payload that looks like rich's markup is shown as it is.
            table.add_row(*(Text(text) for text in row))
        Console(file=self._out).print(table)


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    return f"{cell:g}" if isinstance(cell, float) else printable(str(cell))


def printable(text: str) -> str:
    """Escape control characters, so that stored text cannot steer the reader's terminal."""
    return "".join(
        c if c.isprintable() or c == " " else c.encode("unicode_escape").decode() for c in text
    )


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(".", "", 1).removeprefix("-").isdecimal()


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(value)


def moment(time: datetime | None) -> str | None:
    """Write a time for people, in UTC to the millisecond; None stays None."""
    if time is None:
        return None
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"


def age(seconds: float | None) -> str | None:
    """Write a time span for people: 0.4 s, 12 s, 3 min, 5.0 h, 2.1 d; None stays None."""
    if seconds is None:
        return None
    for limit, divisor, unit, digits in (
        (10, 1, "s", 1),
        (120, 1, "s", 0),
        (7200, 60, "min", 0),
        (172_800, 3600, "h", 1),
    ):
        if seconds < limit:
            return f"{seconds / divisor:.{digits}f} {unit}"
    return f"{seconds / 86_400:.1f} d"
