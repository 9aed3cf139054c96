"""Applications that write while faults happen: ordered and unordered rows, rollbacks, repeats."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Self

import psycopg

import bridge
from bridge.errors import TransactionStateError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from tests.crash.chaos.ledger import Ledger

WRITERS = 2
KEYS = 12
ACCOUNTS = """
    create table chaos_account (ordering_key text primary key, changes integer not null default 0)
"""
"""The business rows: whoever writes for a key locks its row first."""
_NO_TOPIC = "no topic has this name"
_PAUSE = (0.005, 0.04)
_RECONNECT = 0.1
_LOST = (psycopg.OperationalError, psycopg.InterfaceError, TransactionStateError)


class Writers:
    """Threads that write from `start` of the `with` block to its end; they outlive any fault."""

    def __init__(
        self, url: str, prefix: str, topics: Sequence[str], ledger: Ledger, draw: Random
    ) -> None:
        self._stop = threading.Event()
        writers = [
            _Writer(url, f"{prefix}-{number}", topics, ledger, seed=draw.random())
            for number in range(WRITERS)
        ]
        self._threads = [
            threading.Thread(target=writer.run, args=(self._stop,), daemon=True)
            for writer in writers
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


class _Writer:
    def __init__(
        self,
        url: str,
        prefix: str,
        topics: Sequence[str],
        ledger: Ledger,
        *,
        seed: float,
    ) -> None:
        self._url = url
        self._prefix = prefix
        self._topics = topics
        self._ledger = ledger
        self._draw = Random(seed)  # noqa: S311 - chaos that can be repeated, no secret
        self._number = 0
        self._written: list[tuple[str, str]] = []
        self._scheduled: list[str] = []

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                with psycopg.connect(self._url, connect_timeout=5) as connection:
                    while not stop.is_set():
                        self._transact(connection)
                        stop.wait(self._draw.uniform(*_PAUSE))
            except _LOST:
                stop.wait(_RECONNECT)

    def _transact(self, connection: psycopg.Connection) -> None:
        draw, ledger = self._draw, self._ledger
        keys: list[str] = []
        new: list[tuple[str, str]] = []
        commits = False
        try:
            if draw.random() < 0.6:
                ordering_key = f"key-{draw.randrange(KEYS)}"
                connection.execute(
                    "insert into chaos_account values (%s) on conflict (ordering_key) do update "
                    "set changes = chaos_account.changes + 1",
                    [ordering_key],
                )
                new += [
                    self._enqueue(connection, keys, ordering_key) for _ in range(draw.randint(1, 4))
                ]
            new += [self._enqueue(connection, keys) for _ in range(draw.randint(0, 4))]
            scheduled, cancelled, hopeless = self._rarities(connection, keys)
            if self._written and draw.random() < 0.2:
                self._enqueue_again(connection)
            if draw.random() < 0.15:
                connection.rollback()
                self._note(ledger.rolled_back, keys)
                return
            commits = True
            connection.commit()
        except _LOST:
            # Before COMMIT was sent nothing can have been committed.
            self._note(ledger.unknown if commits else ledger.rolled_back, keys)
            raise
        self._note(ledger.committed, keys)
        self._note(ledger.withdrawn, cancelled)
        self._note(ledger.hopeless, hopeless)
        self._scheduled = [key for key in self._scheduled if key not in cancelled] + scheduled
        self._written = (self._written + new)[-50:]

    def _rarities(
        self, connection: psycopg.Connection, keys: list[str]
    ) -> tuple[list[str], list[str], list[str]]:
        """Now and then: schedule a message, withdraw a scheduled one, name a hopeless topic."""
        scheduled, cancelled, hopeless = list[str](), list[str](), list[str]()
        if self._draw.random() < 0.05:
            later = datetime.now(UTC) + timedelta(hours=1)
            scheduled.append(self._enqueue(connection, keys, not_before=later)[0])
        if self._scheduled and self._draw.random() < 0.5:
            cancelled.append(self._scheduled[0])
            connection.execute(
                "update app_outbox set status = 'CANCELLED', claim_id = null "
                "where message_key = %s and status = 'PENDING'",
                cancelled,
            )
        if self._draw.random() < 0.02:
            hopeless.append(self._enqueue(connection, keys, destination=_NO_TOPIC)[0])
        return scheduled, cancelled, hopeless

    def _enqueue(
        self,
        connection: psycopg.Connection,
        keys: list[str],
        ordering_key: str | None = None,
        *,
        destination: str | None = None,
        not_before: datetime | None = None,
    ) -> tuple[str, str]:
        self._number += 1
        key = f"{self._prefix}-{self._number}"
        keys.append(key)
        destination = destination or self._draw.choice(self._topics)
        bridge.enqueue(
            connection,
            message_key=key,
            event_type="order.changed",
            destination=destination,
            payload={"number": self._number},
            ordering_key=ordering_key,
            not_before=not_before,
        )
        return key, destination

    def _enqueue_again(self, connection: psycopg.Connection) -> None:
        key, destination = self._draw.choice(self._written)
        done = bridge.enqueue(
            connection,
            message_key=key,
            event_type="order.changed",
            destination=destination,
            payload={"number": int(key.rpartition("-")[2])},
            on_duplicate="absorb",
        )
        assert not done.created, f"{key} was committed and has no row any more"
        with self._ledger.lock:
            self._ledger.enqueued_twice += 1

    def _note(self, fate: set[str], keys: Sequence[str]) -> None:
        with self._ledger.lock:
            fate.update(keys)
