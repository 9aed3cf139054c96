"""A running console, and a client that reads and sends its forms."""

from __future__ import annotations

import os
import re
from contextlib import ExitStack
from dataclasses import dataclass
from html import unescape
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from starlette.testclient import TestClient

from bridge.cli.config import effective
from bridge.console.app import create_app
from bridge.settings import load_settings
from tests.fixtures.relays import PATIENCE
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

    from tests.fixtures.cli import CliProcess, StartCliFunction

_URL = re.compile(r"outbox-bridge console on (http://\S+)")
_TOKEN = re.compile(r'name="token" value="([0-9a-f]{64})"')
_ROW = re.compile(r'data-row href="[^"]*/messages/(\d+)"')
_OLDER = re.compile(r'rel="next" href="([^"]+)"')


@dataclass
class Console:
    """A console and a client that keeps cookies and does not follow redirects."""

    http: httpx.Client

    def page(self, path: str, status: int = 200) -> str:
        """Return a page's HTML."""
        answer = self.http.get(path)
        assert answer.status_code == status, answer.text
        return answer.text

    def text(self, path: str, status: int = 200) -> str:
        """Return a page's words: tags become spaces, entities what they stand for."""
        html = re.sub(r"<(script|style).*?</\1>", " ", self.page(path, status), flags=re.DOTALL)
        return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", html)))

    def rows(self, path: str) -> list[int]:
        """Return the ids of a page of the list."""
        return [int(one) for one in _ROW.findall(self.page(path))]

    def pages(self, path: str) -> list[list[int]]:
        """Follow `Older` to the end and return the ids of each page."""
        found: list[list[int]] = []
        step: str | None = path
        while step is not None:
            html = self.page(step)
            found.append([int(one) for one in _ROW.findall(html)])
            match = _OLDER.search(html)
            step = unescape(match[1]) if match else None
        return found

    def token(self) -> str:
        """Return the token that this session's forms carry."""
        match = _TOKEN.search(self.page("/relays"))
        assert match is not None
        return match[1]

    def send(self, path: str, **form: Any) -> httpx.Response:
        """Send a form as a browser would, with its token."""
        return self.http.post(path, data={"token": self.token(), **form})

    def act(self, action: str, **form: Any) -> str:
        """Order an action and return the page of its outcome."""
        answer = self.send("/act", action=action, **form)
        assert answer.status_code == 303, answer.text
        return self.text(answer.headers["location"])


class NewConsoleFunction(Protocol):
    def __call__(self, *, peer: str = "127.0.0.1", **settings: Any) -> Console: ...


@pytest.fixture
def new_console(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[NewConsoleFunction]:
    """Build a console within this process; settings of `[console]` as keywords.

    `peer` is the address that requests come from. The database is the test's own.
    """
    for name in list(os.environ):
        if name.startswith(("OUTBOX_BRIDGE_", "PG")):
            monkeypatch.delenv(name)
    url = "postgresql://127.0.0.1:1/none"
    if "database_url" in request.fixturenames:
        url = request.getfixturevalue("database_url")
    with ExitStack() as stack:

        def build(*, peer: str = "127.0.0.1", **settings: Any) -> Console:
            database = {"url": settings.pop("database_url", url)}
            loaded = load_settings(None, {"database": database, "console": settings})
            shown = [(one.name, str(one.value), one.source) for one in effective(loaded)]
            client = TestClient(
                create_app(loaded, port=8470, shown_settings=shown),
                base_url="http://127.0.0.1:8470",
                client=(peer, 50_000),
                follow_redirects=False,
            )
            return Console(stack.enter_context(client))

        yield build


@pytest.fixture
def console(new_console: NewConsoleFunction) -> Console:
    """A console as it is without settings: on loopback, everybody an operator."""
    return new_console()


@dataclass(frozen=True)
class ConsoleProcess:
    url: str
    process: CliProcess


class StartConsoleFunction(Protocol):
    def __call__(
        self, *args: str, env: dict[str, str] | None = None, **settings: Any
    ) -> ConsoleProcess: ...


@pytest.fixture
def start_console(start_cli: StartCliFunction) -> StartConsoleFunction:
    """Start `outbox-bridge console` on a free port; settings of `[console]` as keywords."""

    def start(*args: str, env: dict[str, str] | None = None, **settings: Any) -> ConsoleProcess:
        environment = {
            f"OUTBOX_BRIDGE_CONSOLE_{name.upper()}": str(value) for name, value in settings.items()
        }
        process = start_cli("console", "--port", "0", *args, env={**environment, **(env or {})})
        wait_until(
            lambda: _URL.search(process.stdout) or not process.running,
            "the console listens",
            PATIENCE,
        )
        match = _URL.search(process.stdout)
        assert match is not None, process.stderr
        return ConsoleProcess(match[1].rstrip("/"), process)

    return start
