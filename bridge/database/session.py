"""A stage's connection: prepared for its statements, opened again after it was lost."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg.pq import Format

from bridge.database.connection import connect, first_line, prepare_session
from bridge.database.statements import load
from bridge.errors import DatabaseError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping

Result = TypeVar("Result")

_BYTEA_OID = 17
_FIRST_WAIT = 0.1
_LONGEST_WAIT = 5.0


BUSY = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)
"""Errors of a statement that met somebody else's lock: nothing was written, try again."""

PASSING = (psycopg.OperationalError, psycopg.InternalError)
"""Errors that lie in the server's state (disk full, cancelled, read-only), not the statement."""


class ConnectionLost(DatabaseError):  # noqa: N818 - what happened, not a kind of error
    """The connection is gone; what was under way may or may not have happened."""


class Session:
    """One autocommit connection of one stage, with the project's statements by name.

    json and timestamptz arrive as their raw bytes: the relay passes payloads through, and a
    timestamp may be infinite. Used by one thread. `opened` is called after each (re)connect.
    """

    def __init__(
        self,
        url: str | None,
        *,
        schema: str,
        stage: str,
        relay_name: str,
        lock_timeout: float,
        opened: Callable[[Session], None] | None = None,
    ) -> None:
        self._url = url
        self.schema = schema
        self._stage = stage
        self._relay_name = relay_name
        self._lock_timeout = lock_timeout
        self._opened = opened
        self.connection: psycopg.Connection[tuple[Any, ...]]
        self._cursor: psycopg.Cursor[tuple[Any, ...]]

    def open(self) -> None:
        """Connect and prepare the connection; raises DatabaseError."""
        connection = connect(self._url, stage=self._stage, relay_name=self._relay_name)
        try:
            prepare_session(connection, lock_timeout=self._lock_timeout)
            raw = connection.adapters.get_loader(_BYTEA_OID, Format.BINARY)
            if raw is None:  # psycopg always has one; the type says it may not
                raise DatabaseError("psycopg has no binary loader for bytea")  # noqa: TRY301 - one clean-up
            for name in ("json", "timestamptz"):
                connection.adapters.register_loader(name, raw)
            self.connection = connection
            self._cursor = connection.cursor(binary=True)
            if self._opened is not None:
                self._opened(self)
        except psycopg.OperationalError as error:
            connection.close()
            raise ConnectionLost(f"connection lost: {first_line(error)}") from error
        except psycopg.Error as error:
            connection.close()
            raise DatabaseError(f"the session cannot be prepared: {first_line(error)}") from error
        except BaseException:
            connection.close()
            raise

    def reopen(
        self,
        stop: threading.Event,
        on_wait: Callable[[DatabaseError], None],
        longest_wait: float = _LONGEST_WAIT,
    ) -> bool:
        """Connect again with growing waits (from 0.1 s, jittered) until it works or `stop` is set.

        `on_wait` hears of the first failure only, so that an outage is one line of log. Returns
        False when stopped.
        """
        self.close()
        wait = _FIRST_WAIT
        told = False
        while not stop.is_set():
            try:
                self.open()
            except DatabaseError as error:
                if not told:
                    on_wait(error)
                    told = True
            else:
                return True
            stop.wait(wait * random.uniform(0.8, 1.2))  # noqa: S311 - jitter, not a secret
            wait = min(wait * 2, longest_wait)
        return False

    def close(self) -> None:
        """Close the connection; harmless when it is closed or was never opened."""
        connection = getattr(self, "connection", None)
        if connection is not None:
            connection.close()

    def rows(self, name: str, parameters: Mapping[str, Any] | None = None) -> list[Any]:
        """Run a statement and return its rows; raises ConnectionLost, or psycopg's own errors."""
        try:
            return self._cursor.execute(load(name, self.schema), parameters).fetchall()
        except psycopg.OperationalError as error:
            if self._is_lost(error):
                raise ConnectionLost(f"connection lost: {first_line(error)}") from error
            raise

    def value(self, name: str, parameters: Mapping[str, Any] | None = None) -> Any:
        """Run a statement and return the first column of its only row."""
        return self.rows(name, parameters)[0][0]

    def run(self, name: str, parameters: Mapping[str, Any] | None = None) -> int:
        """Run a statement without result and return the number of rows it touched."""
        try:
            return self._cursor.execute(load(name, self.schema), parameters).rowcount
        except psycopg.OperationalError as error:
            if self._is_lost(error):
                raise ConnectionLost(f"connection lost: {first_line(error)}") from error
            raise

    def in_transaction(self, work: Callable[[], Result]) -> Result:
        """Run `work` in one transaction; it commits, or nothing happened."""
        try:
            with self.connection.transaction():
                return work()
        except psycopg.OperationalError as error:
            if self._is_lost(error):
                raise ConnectionLost(f"connection lost: {first_line(error)}") from error
            raise

    def _is_lost(self, error: psycopg.OperationalError) -> bool:
        """Tell a lost connection from an error of one statement (lock time-out, deadlock …)."""
        state = error.sqlstate
        return self.connection.closed or state is None or state[:2] == "08" or state[:3] == "57P"
