"""What a person sees while the demo runs: on stderr, live on a terminal, else a line a second."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, RenderableType
    from rich.live import Live

_LINE_SECONDS = 1.0
_FRAMES_A_SECOND = 8


class Progress(Protocol):
    """The counts of this moment, as a screen shows them."""

    @property
    def total(self) -> int:
        """Where every count of `bars` will end."""

    def bars(self) -> list[tuple[str, int]]:
        """Return the names and counts that grow to `total`."""

    def others(self) -> list[tuple[str, int]]:
        """Return names and counts without a known end."""

    def states(self) -> tuple[str, dict[str, str]]:
        """Return what the processes are called together, and each one's state."""


@dataclass(slots=True)
class Numbers:
    """The demo's counts; `total` is where `enqueued`, `sent` and `received` will end."""

    total: int = 0
    enqueued: int = 0
    sent: int = 0
    received: int = 0
    duplicates: int = 0
    relays: dict[str, str] = field(default_factory=dict)

    def bars(self) -> list[tuple[str, int]]:
        """Return what has been done of the whole."""
        return [("enqueued", self.enqueued), ("SENT", self.sent), ("received", self.received)]

    def others(self) -> list[tuple[str, int]]:
        """Return the duplicates."""
        return [("duplicates", self.duplicates)]

    def states(self) -> tuple[str, dict[str, str]]:
        """Return the relays' states."""
        return "relays", self.relays


class Screen(Protocol):
    """Where the demo tells what happens."""

    def act(self, number: int, text: str) -> None:
        """Announce an act."""

    def note(self, text: str) -> None:
        """Tell what happens within an act; may be called from any thread."""

    def check(self, text: str, *, holds: bool) -> None:
        """Tell whether a sum adds up."""

    def show(self, numbers: Progress) -> None:
        """Show the counts; may be called as often as they are known."""


@contextlib.contextmanager
def open_screen(stderr: TextIO, acts: int = 5) -> Iterator[Screen]:
    """Choose and open the screen that fits `stderr`; `acts` are numbered. NO_COLOR is honoured."""
    # A plain screen needs no rich.
    if stderr.isatty():
        from rich.console import Console  # noqa: PLC0415 - see above
        from rich.live import Live  # noqa: PLC0415 - see above

        console = Console(file=stderr, highlight=False)
        if not console.is_dumb_terminal:
            with Live(console=console, transient=True, refresh_per_second=_FRAMES_A_SECOND) as live:
                yield LiveScreen(console, live, acts)
            return
    yield PlainScreen(stderr, acts)


class PlainScreen:
    """Lines for a log."""

    def __init__(self, stderr: TextIO, acts: int) -> None:
        self._stderr = stderr
        self._acts = acts
        self._started = time.monotonic()
        self._next_line = 0.0

    def act(self, number: int, text: str) -> None:
        """Announce an act on a line of its own."""
        self._line(f"{number}/{self._acts} {text}")

    def note(self, text: str) -> None:
        """Write an indented line."""
        self._line(f"    {text}")

    def check(self, text: str, *, holds: bool) -> None:
        """Write the sum with its outcome in front."""
        self._line(f"    {'ok   ' if holds else 'WRONG'} {text}")

    def show(self, numbers: Progress) -> None:
        """Write the counts, about once a second."""
        now = time.monotonic()
        if now < self._next_line:
            return
        self._next_line = now + _LINE_SECONDS
        counts = "  ".join(
            f"{name} {count:,}" for name, count in [*numbers.bars(), *numbers.others()]
        )
        states = ", ".join(f"{name} {state}" for name, state in numbers.states()[1].items())
        self._line(f"    {now - self._started:5.1f} s  {counts}  {states}")

    def _line(self, text: str) -> None:
        self._stderr.write(text.rstrip() + "\n")
        self._stderr.flush()


_STATE_STYLES = {"up": "green", "killed": "bold red", "off": "dim"}


class LiveScreen:
    """Bars below what has been told so far."""

    def __init__(self, console: Console, live: Live, acts: int) -> None:
        self._console = console
        self._acts = acts
        self._live = live

    def act(self, number: int, text: str) -> None:
        """Announce an act in bold."""
        self._console.print(self._text(f"{number}/{self._acts} ", "bold cyan", text, "bold"))

    def note(self, text: str) -> None:
        """Write an indented line."""
        self._console.print(self._text("    ", "", text, ""))

    def check(self, text: str, *, holds: bool) -> None:
        """Write the sum with its outcome in front."""
        mark, style = ("✓", "green") if holds else ("✗ WRONG", "bold red")
        self._console.print(self._text(f"    {mark} ", style, text, "" if holds else style))

    def show(self, numbers: Progress) -> None:
        """Redraw the bars."""
        self._live.update(self._frame(numbers))

    def _text(self, head: str, head_style: str, text: str, style: str) -> RenderableType:
        from rich.text import Text  # noqa: PLC0415 - loaded already where this class is used

        return Text.assemble((head, head_style), (text, style))

    def _frame(self, numbers: Progress) -> RenderableType:
        from rich.progress_bar import ProgressBar  # noqa: PLC0415 - see above
        from rich.table import Table  # noqa: PLC0415 - see above
        from rich.text import Text  # noqa: PLC0415 - see above

        frame = Table.grid(padding=(0, 1))
        frame.add_column(width=12, justify="right")
        frame.add_column(width=40)
        frame.add_column(justify="right")
        for name, count in numbers.bars():
            bar = ProgressBar(total=max(1, numbers.total), completed=count)
            frame.add_row(name, bar, f"{count:,}")
        together, states = numbers.states()
        parts = Text("  ").join(
            Text.assemble(name, " ", (state, _STATE_STYLES.get(state, "")))
            for name, state in states.items()
        )
        frame.add_row(together, parts, "")
        for name, count in numbers.others():
            frame.add_row(name, f"{count:,}", "")
        return frame
