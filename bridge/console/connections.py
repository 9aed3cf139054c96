"""Database connections: a few read-only ones that pages share, and one for each action."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg

from bridge.database.connection import PLANNER_GUARDS, connect
from bridge.database.reading import clamp_times, translated
from bridge.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.settings import Settings

_CONNECT_SECONDS = 5
_WAIT_SECONDS = 5.0
_FRESH_SECONDS = 1.0
_IDLE_SECONDS = 300.0
_ACTION_STATEMENT_SECONDS = 60

Connection = psycopg.Connection[tuple[Any, ...]]


class ReadConnections:
    """Up to `limit` read-only sessions, opened when needed, used by one page at a time.

    Each is read-only by `default_transaction_read_only`, with a statement time-out; what is wrong
    with the page's code or its input cannot write. Safe to use from several threads.
    """

    def __init__(self, settings: Settings, limit: int = 8) -> None:
        console, database = settings.console, settings.database
        url = console.read_url or database.direct_url or database.url
        self._url = url.get_secret_value() if url is not None else None
        self.schema = database.schema_name
        self._timeout = console.statement_timeout
        self._idle: list[tuple[float, Connection]] = []
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(limit)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Lend a connection in autocommit. Raises DatabaseError and SchemaError, in words."""
        if not self._free.acquire(timeout=_WAIT_SECONDS):
            raise DatabaseError(
                "all database connections of the console are busy; the database answers slowly, "
                "or too many people look at once"
            )
        try:
            connection = self._take() or self._open()
            try:
                with translated(self.schema):
                    yield connection
            finally:
                self._give_back(connection)
        finally:
            self._free.release()

    def close(self) -> None:
        """Close what is idle."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()

    def _take(self) -> Connection | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                since, connection = self._idle.pop()
            rested = time.monotonic() - since
            if rested < _IDLE_SECONDS and (rested < _FRESH_SECONDS or _answers(connection)):
                return connection
            connection.close()

    def _give_back(self, connection: Connection) -> None:
        if connection.closed or connection.info.transaction_status:
            connection.close()
            return
        with self._lock:
            self._idle.append((time.monotonic(), connection))

    def _open(self) -> Connection:
        connection = connect(self._url, stage="console", connect_timeout=_CONNECT_SECONDS)
        try:
            with translated(self.schema):
                _refuse_poolers(connection)
                _prepare(
                    connection,
                    {
                        "default_transaction_read_only": "on",
                        "default_transaction_isolation": "read committed",
                        "statement_timeout": f"{max(1, int(self._timeout * 1000))}ms",
                        "lock_timeout": "1s",
                        "idle_in_transaction_session_timeout": "30s",
                        "TimeZone": "UTC",
                        # Pages look rows up by key, whatever the statistics say.
                        **PLANNER_GUARDS,
                    },
                )
        except BaseException:
            connection.close()
            raise
        clamp_times(connection)
        # Plans are made for the values at hand: a filter left out must not cost anything.
        connection.prepare_threshold = None
        return connection


class ActionConnections:
    """A connection of its own for each action, to a primary."""

    def __init__(self, settings: Settings) -> None:
        url = settings.database.direct_url or settings.database.url
        self._url = url.get_secret_value() if url is not None else None
        self.schema = settings.database.schema_name

    @contextmanager
    def acting(self) -> Iterator[Connection]:
        """Open a connection in autocommit and close it. Raises DatabaseError and SchemaError."""
        with (
            connect(
                self._url, stage="console-act", connect_timeout=_CONNECT_SECONDS, primary=True
            ) as connection,
            translated(self.schema),
        ):
            _refuse_poolers(connection)
            _prepare(
                connection,
                {
                    "default_transaction_read_only": "off",
                    "default_transaction_isolation": "read committed",
                    "statement_timeout": f"{_ACTION_STATEMENT_SECONDS}s",
                    "idle_in_transaction_session_timeout": "30s",
                    "TimeZone": "UTC",
                },
            )
            clamp_times(connection)
            yield connection


def _answers(connection: Connection) -> bool:
    try:
        connection.execute(b"select 1")
    except psycopg.Error:
        return False
    return True


def _refuse_poolers(connection: Connection) -> None:
    """Raise DatabaseError behind a transaction pooler: our settings would reach other sessions."""
    row = connection.execute(b"select pg_catalog.pg_backend_pid()").fetchone()
    if row is None or row[0] != connection.info.backend_pid:
        raise DatabaseError(
            "the database URL leads through a connection pooler, where a read-only session is not "
            "to be had; set database.direct_url (or console.read_url) to lead past it"
        )


def _prepare(connection: Connection, settings: dict[str, str]) -> None:
    query = "select " + ", ".join(
        f"pg_catalog.set_config(%(n{i})s, %(v{i})s, false)" for i in range(len(settings))
    )
    parameters: dict[str, str] = {}
    for i, (name, value) in enumerate(settings.items()):
        parameters[f"n{i}"], parameters[f"v{i}"] = name, value
    connection.execute(query.encode(), parameters)
