"""A stage's connection: prepared for its statements, opened again after it was lost."""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import psycopg
from psycopg.pq import Format, TransactionStatus

from bridge.database.connection import (
    READ_ONLY,
    connect,
    first_line,
    prepare_session,
    transaction_settings,
)
from bridge.database.statements import load
from bridge.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Result = TypeVar("Result")

_BYTEA_OID = 17
_FIRST_WAIT = 0.1
_LONGEST_WAIT = 5.0
_SETTLED = 5.0
"""Seconds for which a connection must have lived until the next one is tried without a wait."""

_BEGIN = b"begin isolation level read committed, read write"
_WHERE_AM_I = b"select pg_catalog.pg_backend_pid(), pg_catalog.pg_is_in_recovery()"

BUSY = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)
"""Errors of a statement that met somebody else's lock: nothing was written, try again."""

PASSING = (psycopg.OperationalError, psycopg.InternalError)
"""Errors that lie in the server's state (disk full, cancelled, read-only), not the statement."""


class ConnectionLost(DatabaseError):  # noqa: N818 - what happened, not a kind of error
    """The connection is gone; what was under way may or may not have happened."""


class SessionObserver(Protocol):
    """Hears what becomes of a session, from the thread that uses it."""

    def opened(self, session: Session) -> None:
        """Hear that the session is connected, for the first time or again."""

    def lost(self, session: Session, reason: str) -> None:
        """Hear that the connection is gone or cannot be had; once for each attempt."""

    def refused(self, session: Session, statement: str, reason: str) -> None:
        """Hear that the server's state (not a lock) refused a statement."""

    def accepted(self, session: Session, statement: str) -> None:
        """Hear that a statement refused before has run."""


class Session:
    """One autocommit connection of one stage, with the project's statements by name.

    json and timestamptz arrive as their raw bytes: the relay passes payloads through, and a
    timestamp may be infinite. Used by one thread; `cut` may be called from any. `opened` is called
    after each (re)connect.

    Behind a pooler (`is_pooled`: found out at connect) nothing is prepared and no setting outlives
    a transaction: a statement travels with its BEGIN, settings and COMMIT in one round trip.
    LISTEN and session locks are not to be had there. A server that is or becomes read-only counts
    as lost: the next connection looks for a primary.
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
        observer: SessionObserver | None = None,
        answer_timeout: float = 0.0,
    ) -> None:
        self._url = url
        self.schema = schema
        self.stage = stage
        self._relay_name = relay_name
        self._lock_timeout = lock_timeout
        self._opened = opened
        self._observer = observer
        self.answer_timeout = answer_timeout
        """Seconds after which an observer cuts a connection that does not answer; 0: never."""
        self.asked = 0.0
        """Monotonic time since when an answer of the server is awaited; 0: none is."""
        self.active_at = 0.0
        """Monotonic time of the last answer, or of the last attempt to connect again."""
        self.is_pooled = False
        self.connection: psycopg.Connection[tuple[Any, ...]]
        self._cursor: psycopg.Cursor[tuple[Any, ...]]
        self._settings = transaction_settings(lock_timeout)
        self._in_block = False
        self._refused: set[str] = set()
        self._wait = _FIRST_WAIT
        self._since = 0.0
        self._descriptor = threading.Lock()

    def open(self) -> None:
        """Connect and prepare the connection; raises DatabaseError."""
        connection = connect(self._url, stage=self.stage, relay_name=self._relay_name, primary=True)
        self.connection = connection
        try:
            with self._asking():
                self._prepare(connection)
                if self._opened is not None:
                    self._opened(self)
        except psycopg.OperationalError as error:
            self.close()
            raise ConnectionLost(f"connection lost: {first_line(error)}") from error
        except psycopg.Error as error:
            self.close()
            raise DatabaseError(f"the session cannot be prepared: {first_line(error)}") from error
        except BaseException:
            self.close()
            raise
        self._since = time.monotonic()
        self._refused.clear()
        if self._observer is not None:
            self._observer.opened(self)

    def _prepare(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        place = connection.execute(_WHERE_AM_I).fetchone()
        if place is None or place[1]:
            raise ConnectionLost(f"connection given up: {READ_ONLY}")
        # A pooler tells each client a process id of its own making.
        self.is_pooled = place[0] != connection.info.backend_pid
        if self.is_pooled:
            connection.prepare_threshold = None
        else:
            prepare_session(connection, lock_timeout=self._lock_timeout)
        raw = connection.adapters.get_loader(_BYTEA_OID, Format.BINARY)
        if raw is None:  # psycopg always has one; the type says it may not
            raise DatabaseError("psycopg has no binary loader for bytea")
        for name in ("json", "timestamptz"):
            connection.adapters.register_loader(name, raw)
        self._cursor = connection.cursor(binary=True)

    def reopen(self, stop: threading.Event, longest_wait: float = _LONGEST_WAIT) -> bool:
        """Connect again until it works or `stop` is set; False when stopped.

        Waits grow from 0.1 s to `longest_wait`, jittered. They begin anew once a connection has
        lived for a while, so a server that drops each new one is not hammered.
        """
        self.close()
        if time.monotonic() - self._since >= _SETTLED:
            self._wait = _FIRST_WAIT
        else:
            self._pause(stop, longest_wait)
        while not stop.is_set():
            try:
                self.open()
            except DatabaseError as error:
                self._tell_lost(str(error))
            else:
                return True
            self._pause(stop, longest_wait)
        return False

    def _pause(self, stop: threading.Event, longest_wait: float) -> None:
        self.active_at = time.monotonic()
        wait = min(self._wait, longest_wait)
        self._wait = min(wait * 2, longest_wait)
        stop.wait(wait * random.uniform(0.8, 1.2))  # noqa: S311 - jitter, not a secret

    def close(self) -> None:
        """Close the connection; harmless when it is closed or was never opened."""
        connection = getattr(self, "connection", None)
        if connection is not None:
            with self._descriptor:
                connection.close()

    def cut(self) -> bool:
        """End a connection whose answer is awaited: its thread sees ConnectionLost.

        For a peer that is gone although TCP says it lives (a stuck proxy, a lost route). False
        where no answer is awaited any more.
        """
        with self._descriptor:
            if not self.asked or self.connection.closed:
                return False
            try:
                with socket.socket(fileno=os.dup(self.connection.fileno())) as peer:
                    peer.shutdown(socket.SHUT_RDWR)
            except (OSError, psycopg.Error):
                return False  # it has ended by itself
            return True

    def rows(self, name: str, parameters: Mapping[str, Any] | None = None) -> list[Any]:
        """Run a statement and return its rows; raises ConnectionLost, or psycopg's own errors."""
        return self._execute(name, parameters).fetchall()

    def value(self, name: str, parameters: Mapping[str, Any] | None = None) -> Any:
        """Run a statement and return the first column of its only row."""
        return self.rows(name, parameters)[0][0]

    def run(self, name: str, parameters: Mapping[str, Any] | None = None) -> int:
        """Run a statement without result and return the number of rows it touched."""
        return self._execute(name, parameters).rowcount

    def stream(self, name: str, parameters: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
        """Run a statement and yield its rows as they come; only inside `in_transaction`."""
        with self._translated(name), self.connection.cursor() as cursor:
            for row in cursor.stream(load(name, self.schema), parameters):
                self.asked = time.monotonic()
                yield row

    def in_transaction(self, work: Callable[[], Result]) -> Result:
        """Run `work` in one transaction; it commits, or nothing happened."""
        with self._translated(""):
            self._in_block = True
            try:
                if not self.is_pooled:
                    with self.connection.transaction():
                        return work()
                return self._in_pooled_transaction(work)
            finally:
                self._in_block = False

    def notified(self, timeout: float) -> bool:
        """Wait for a notification on a channel listened to; False after `timeout` seconds."""
        try:
            return any(True for _ in self.connection.notifies(timeout=timeout, stop_after=1))
        except psycopg.OperationalError as error:
            raise self._as_lost(error) from error

    def _execute(
        self, name: str, parameters: Mapping[str, Any] | None
    ) -> psycopg.Cursor[tuple[Any, ...]]:
        statement = load(name, self.schema)
        with self._translated(name):
            if self.is_pooled and not self._in_block:
                cursor = self._execute_pooled(statement, parameters)
            else:
                cursor = self._cursor.execute(statement, parameters)
        if self._refused and name in self._refused:
            self._refused.discard(name)
            if self._observer is not None:
                self._observer.accepted(self, name)
        return cursor

    def _execute_pooled(
        self, statement: bytes, parameters: Mapping[str, Any] | None
    ) -> psycopg.Cursor[tuple[Any, ...]]:
        """Run one statement as a transaction with its settings, in one round trip."""
        connection = self.connection
        try:
            with connection.pipeline():
                connection.execute(_BEGIN)
                connection.execute(*self._settings)
                self._cursor.execute(statement, parameters)
                connection.execute(b"commit")
        except psycopg.Error:
            self._roll_back()
            raise
        return self._cursor

    def _in_pooled_transaction(self, work: Callable[[], Result]) -> Result:
        connection = self.connection
        try:
            with connection.pipeline():
                connection.execute(_BEGIN)
                connection.execute(*self._settings)
            result = work()
            connection.execute(b"commit")
        except BaseException:
            self._roll_back()
            raise
        return result

    def _roll_back(self) -> None:
        if self.connection.info.transaction_status in (
            TransactionStatus.INTRANS,
            TransactionStatus.INERROR,
        ):
            self.connection.rollback()

    @contextmanager
    def _asking(self) -> Iterator[None]:
        self.asked = time.monotonic()
        try:
            yield
        finally:
            self.active_at = time.monotonic()
            # Within a block the next statement or the commit follows at once.
            self.asked = self.active_at if self._in_block else 0.0

    @contextmanager
    def _translated(self, name: str) -> Iterator[None]:
        """Turn the loss of the connection into ConnectionLost; tell of what the server refuses."""
        try:
            with self._asking():
                yield
        except BUSY:
            raise
        except PASSING as error:
            if self._is_lost(error):
                raise self._as_lost(error) from error
            if name:
                self._refused.add(name)
                if self._observer is not None:
                    self._observer.refused(self, name, first_line(error))
            raise

    def _as_lost(self, error: psycopg.Error) -> ConnectionLost:
        reason = f"connection lost: {first_line(error)}"
        if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
            reason = f"connection given up: {READ_ONLY}"
        self.close()  # a read-only one is still open
        self._tell_lost(reason)
        return ConnectionLost(reason)

    def _tell_lost(self, reason: str) -> None:
        if self._observer is not None:
            self._observer.lost(self, reason)

    def _is_lost(self, error: psycopg.Error) -> bool:
        """Tell a lost connection from an error of one statement (disk full, cancelled …)."""
        state = error.sqlstate
        return (
            self.connection.closed
            or isinstance(error, psycopg.errors.ReadOnlySqlTransaction)
            or (isinstance(error, psycopg.OperationalError) and state is None)
            or (state is not None and (state[:2] == "08" or state[:3] == "57P"))
        )
