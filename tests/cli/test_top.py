from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.cli.test_status import insert
from tests.fixtures.postgres import on_one_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.cli import RunCliFunction

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_SECONDS = 60.0


class Terminal:
    """`top` in a pseudo terminal of 140 columns and 40 lines."""

    def __init__(self, env: dict[str, str]) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bridge", "top", "--interval", "0.2"],
            # Rich believes these two rather than the terminal.
            env={**env, "TERM": "xterm", "COLUMNS": "140", "LINES": "40"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
        )

    def wait_for(self, pattern: str) -> str:
        """Return what was drawn until it shows the pattern."""
        drawn, deadline = "", time.monotonic() + _SECONDS
        while not re.search(pattern, _ESCAPE.sub("", drawn)):
            if time.monotonic() > deadline:
                pytest.fail(f"no {pattern!r} in:\n{_ESCAPE.sub('', drawn)[-4000:]}")
            if select.select([self.master], [], [], 0.2)[0]:
                drawn += os.read(self.master, 65536).decode("utf-8", "replace")
        return drawn

    def press(self, key: str) -> None:
        os.write(self.master, key.encode())

    def end(self) -> int:
        """Return the exit code, reading on: a full terminal would block it."""
        deadline = time.monotonic() + _SECONDS
        while (code := self.process.poll()) is None and time.monotonic() < deadline:
            if select.select([self.master], [], [], 0.1)[0]:
                os.read(self.master, 65536)
        assert code is not None, "still running"
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.slave)
        os.close(self.master)


@pytest.fixture
def terminal(database_url: str, cli_env: dict[str, str]) -> Iterator[Terminal]:
    with psycopg.connect(database_url, autocommit=True) as conn:
        insert(conn, 3, "orders")
    opened = Terminal(cli_env)
    yield opened
    opened.close()


@on_one_server
def test_it_follows_what_happens_survives_a_lost_connection_and_leaves_the_terminal_as_it_was(
    terminal: Terminal, database_url: str
) -> None:
    terminal.wait_for(r"orders +3 ")
    with psycopg.connect(database_url, autocommit=True) as conn:
        insert(conn, 2, "\x1b[2Jinvoices")
        terminal.wait_for(r"\\x1b\[2Jinvoices +2 ")
        ended = conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where application_name like '%/top' and datname = current_database()"
        ).fetchall()
        assert ended
        insert(conn, 4, "orders")
    terminal.wait_for(r"orders +7 ")
    terminal.press("q")
    assert terminal.end() == 0
    assert termios.tcgetattr(terminal.slave) == terminal.before


def test_it_writes_one_look_as_plain_text_where_nobody_looks(
    database_url: str, run_cli: RunCliFunction
) -> None:
    with psycopg.connect(database_url, autocommit=True) as conn:
        insert(conn, 3, "orders")
        conn.execute(
            "update app_outbox set status = 'FAILED', last_error_code = 'MSG_SIZE_TOO_LARGE' "
            "where outbox_id = 1"
        )
    text = run_cli("top").stdout
    lines = text.splitlines()
    assert lines[0].startswith("PENDING 2   PROCESSING 0   SENT 0   FAILED 1")
    assert re.search(r"^orders +2 +0 +0 +1 ", text, re.MULTILINE)
    assert re.search(r"^orders +MSG_SIZE_TOO_LARGE +1 ", text, re.MULTILINE)
    assert lines[-1] == "No relay is registered."
    assert "\x1b" not in text
    document = json.loads(run_cli("top", "--json").stdout)
    assert document["counts"]["FAILED"] == 1
    assert len(document["minutes"]) == 60
    assert document["sent_per_second"] == {"orders": 0.0}
