"""Who ends is started again, who is broken is named, and who is asked to end does so."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from bridge.demo.shop import members
from bridge.demo.shop.members import Member
from bridge.errors import OutboxError
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_PATIENT = "import time; time.sleep(600)"
_DEAF = (
    "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); "
    "time.sleep(600)"
)


@pytest.fixture
def hire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Member]]:
    monkeypatch.setattr(members, "_PAUSE_SECONDS", 0.0)
    hired: list[Member] = []

    def hire(program: str) -> Member:
        member = Member(
            "clerk", [sys.executable, "-c", program], folder=tmp_path, environment=dict(os.environ)
        )
        hired.append(member)
        member.start()
        return member

    yield hire
    for member in hired:
        member.close()


def test_a_killed_member_is_started_again_and_counted(hire: Callable[[str], Member]) -> None:
    clerk = hire(_PATIENT)
    assert clerk.is_ready
    assert not clerk.keep()
    before = clerk.pid
    os.kill(before, signal.SIGKILL)
    wait_until(clerk.keep, "it was started again")
    assert clerk.pid != before
    assert (clerk.kills, clerk.state) == (1, "up")
    clerk.kill()
    assert (clerk.kills, clerk.state) == (2, "killed")
    assert not clerk.keep(), "who kills it starts it"
    clerk.start()
    assert clerk.state == "up"
    assert clerk.stop()
    assert not clerk.keep()


def test_a_member_that_fails_again_and_again_is_named_with_its_last_words(
    hire: Callable[[str], Member],
) -> None:
    clerk = hire("import sys; print('no such database', flush=True); sys.exit(3)")

    told: list[str] = []

    def is_broken() -> bool:
        try:
            clerk.keep()
        except OutboxError as error:
            told.append(str(error))
        return bool(told)

    wait_until(is_broken, "it counts as broken", 120)
    assert "the demo's clerk ended by itself 21 times, now with exit code 3" in told[0]
    assert "no such database" in told[0]
    assert clerk.kills == 0


def test_who_is_killed_while_it_ends_counts_as_killed_and_not_as_unclean(
    hire: Callable[[str], Member], tmp_path: Path
) -> None:
    clerk = hire(_DEAF)
    wait_until(lambda: "up" in (tmp_path / "clerk.log").read_text(), "it is deaf")
    clerk.ask_to_stop()
    assert clerk.is_ready
    os.kill(clerk.pid, signal.SIGKILL)
    assert clerk.stop()
    assert clerk.kills == 1


def test_who_does_not_end_when_asked_is_unclean(
    hire: Callable[[str], Member], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "_STOP_SECONDS", 0.2)
    clerk = hire(_DEAF)
    wait_until(lambda: "up" in (tmp_path / "clerk.log").read_text(), "it is deaf")
    assert not clerk.stop()
    assert clerk.kills == 0
