"""Progress goes to the screen that fits: bars on a terminal, else lines, never faster than read."""

from __future__ import annotations

import io
import os
import pty
from types import SimpleNamespace
from typing import TextIO

import pytest

from bridge.demo import screen as screens
from bridge.demo.screen import LiveScreen, Numbers, PlainScreen, open_screen


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> TextIO:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    return Terminal()


NUMBERS = Numbers(
    total=1000,
    enqueued=700,
    sent=600,
    received=599,
    duplicates=3,
    relays={"relay-1": "killed", "relay-2": "up"},
)


def test_a_log_gets_lines_and_at_most_about_one_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(screens, "time", SimpleNamespace(monotonic=lambda: clock.now))
    log = io.StringIO()
    with open_screen(log) as screen:
        assert isinstance(screen, PlainScreen)
        screen.act(2, "the shop opens")
        for _ in range(100):
            screen.show(NUMBERS)
        clock.now += 1.5
        screen.show(NUMBERS)
        screen.check("nothing was lost (0)", holds=True)
        screen.check("every message is SENT (2 ≠ 1)", holds=False)
    text = log.getvalue()
    assert "2/5 the shop opens\n" in text
    assert text.count("enqueued 700") == 2
    assert "relay-1 killed, relay-2 up" in text
    assert "ok    nothing was lost" in text
    assert "WRONG every message is SENT" in text
    assert "\x1b" not in text


def test_a_terminal_gets_bars_and_what_was_told_stays(terminal: Terminal) -> None:
    with open_screen(terminal) as screen:
        assert isinstance(screen, LiveScreen)
        screen.act(4, "rush hour")
        screen.show(NUMBERS)
        screen.note("relay-1 killed [3] rows")
        screen.check("nothing was lost (0)", holds=True)
    text = terminal.getvalue()
    assert "rush hour" in text
    assert "relay-1 killed [3] rows" in text
    assert "600" in text
    assert "\x1b[?25h" in text, "the cursor is visible again"


def test_no_color_is_honoured_on_a_terminal(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    with open_screen(terminal) as screen:
        screen.check("nothing was lost (0)", holds=True)
    assert "\x1b[32m" not in terminal.getvalue()
    assert "nothing was lost" in terminal.getvalue()


def test_a_dumb_terminal_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    far, near = pty.openpty()
    with os.fdopen(near, "w") as stderr, open_screen(stderr) as screen:
        assert isinstance(screen, PlainScreen)
    os.close(far)
