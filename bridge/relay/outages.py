"""What the database is to the whole relay: there or lost, and one line of log for each change."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.database.session import Session

CALM = 5.0
"""Seconds that a condition must be away until its return is told at once: flapping is no flood."""

_TICK = 0.5
_FORGET = 30.0
"""Seconds after which a statement that is refused no more and never run again is forgotten."""


class DatabaseState:
    """Hears of every session of a relay and logs what changes for the relay as a whole.

    "database lost" when the first session is lost, "database back" when the last one is; the same
    for a server that refuses statements (disk full, out of memory). A session that had nothing to
    ask notices an outage when it is long over: if it connects again at once that is no news. It
    also cuts sessions that wait for an answer for longer than their time-out: a peer that is gone
    without a word. Thread-safe.
    """

    def __init__(self) -> None:
        log = structlog.get_logger("bridge.relay.database")
        self._lock = threading.Lock()
        self._opened: dict[Session, float] = {}
        self._lost = _Condition(
            lambda **about: log.warning(
                "database lost, connecting again; nothing is dropped", **about
            ),
            lambda **about: log.info("database back", **about),
        )
        self._refuses = _Condition(
            lambda **about: log.warning("database refuses statements, tried again", **about),
            lambda **about: log.info("database accepts statements again", **about),
        )
        self._log = log
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_lost(self) -> bool:
        """Tell whether any session is without a connection."""
        return self._lost.holds

    @property
    def refuses(self) -> bool:
        """Tell whether the server's state refuses any statement."""
        return self._refuses.holds

    def opened(self, session: Session) -> None:
        """Hear that a session is connected."""
        with self._lock:
            self._lost.end(session)
            self._opened[session] = time.monotonic()
            self._refuses.end_all(lambda key: key[0] is session)
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(
                    target=self._watch, name="outbox-bridge-database", daemon=True
                )
                self._thread.start()

    def lost(self, session: Session, reason: str) -> None:
        """Hear that a session lost its connection or cannot get one."""
        with self._lock:
            before = self._lost.last_began
            is_news = self._opened.get(session, before) >= before
            self._lost.begin(session, is_news=is_news, stage=session.stage, reason=reason)

    def refused(self, session: Session, statement: str, reason: str) -> None:
        """Hear that the server's state refused a statement, which will be tried again."""
        with self._lock:
            about: dict[str, Any] = {
                "stage": session.stage,
                "statement": statement,
                "reason": reason,
            }
            self._refuses.begin((session, statement), **about)

    def accepted(self, session: Session, statement: str) -> None:
        """Hear that a statement refused before has run."""
        with self._lock:
            self._refuses.end((session, statement))

    def stop(self) -> None:
        """End the watch; safe to call twice."""
        self._stop.set()

    def _watch(self) -> None:
        while not self._stop.wait(_TICK):
            with self._lock:
                self._refuses.forget(time.monotonic() - _FORGET)
                self._lost.settle()
                self._refuses.settle()
                sessions = list(self._opened)
            for session in sessions:
                asked = session.asked
                waited = time.monotonic() - asked
                if asked and 0 < session.answer_timeout < waited and session.cut():
                    self._log.warning(
                        "the database does not answer; the connection is given up",
                        stage=session.stage,
                        waited_seconds=round(waited, 1),
                    )


class _Condition:
    """Something that holds while at least one party says so; tells its beginning and its end.

    Its end is told at once. Its beginning, too, unless it ended less than CALM seconds ago: then
    only if it still holds after that time. So it is told at most once in CALM seconds. What is no
    news is told when the party says so again, or if it holds for CALM seconds.
    """

    def __init__(self, on_begin: Callable[..., None], on_end: Callable[..., None]) -> None:
        self._on_begin = on_begin
        self._on_end = on_end
        self._parties: dict[Any, float] = {}
        self._about: dict[str, Any] = {}
        self._began = 0.0
        self._told = False
        self._calm_from = float("-inf")
        self._ended = float("-inf")
        self.last_began = float("-inf")
        """Monotonic time at which what was told last, and is over, had begun."""

    @property
    def holds(self) -> bool:
        """Tell whether any party says that it holds."""
        return bool(self._parties)

    def begin(self, party: Any, *, is_news: bool = True, **about: Any) -> None:
        """Take note that it holds for a party."""
        now = time.monotonic()
        if not self._parties:
            self._began = self._calm_from = now
            self._about = about
        if is_news or party in self._parties:
            self._calm_from = self._ended
        self._parties[party] = now
        self.settle()

    def end(self, party: Any) -> None:
        """Take note that it holds for a party no more."""
        if self._parties.pop(party, None) is not None:
            self.settle()

    def end_all(self, which: Callable[[Any], bool]) -> None:
        """Take note that it holds no more for the parties that `which` picks."""
        for party in [party for party in self._parties if which(party)]:
            self.end(party)

    def forget(self, before: float) -> None:
        """Drop parties that have said nothing since a monotonic time."""
        for party in [party for party, at in self._parties.items() if at < before]:
            self.end(party)

    def settle(self) -> None:
        """Tell what has changed since the last line, where it is time to."""
        now = time.monotonic()
        if self._parties and not self._told:
            if now - self._calm_from >= CALM:
                self._told = True
                self._on_begin(**self._about)
        elif not self._parties and self._told:
            self._told = False
            self._ended = now
            self.last_began = self._began
            self._on_end(seconds=round(now - self._began, 1))
