"""The consumer's own database: connections that come back, and what its errors mean."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from bridge.database.connection import connect_parameters, first_line, set_config

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bridge.consumer.inbox import Inbox

C = TypeVar("C")

_log = logging.getLogger("bridge.consumer")

_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0
_GRACE = 30.0
"""Seconds after a handler's time is up until the server ends its transaction."""

# Serialization failure, deadlock, lock time-out: somebody else was faster.
_LOCKED = "55P03"
_TRANSIENT = frozenset({"40001", "40P01", _LOCKED})
# Sessions that were ended, a server that stops, starts or lacks room, a standby.
_LOST = frozenset({"57P01", "57P02", "57P03", "57P05", "25P03", "25006", "53300", "53100", "53200"})


class InboxError(Exception):
    """A statement of the inbox itself failed: never the message's fault."""


class Database:
    """Opens connections for all workers, and says once when the server goes and comes back.

    `lock_timeout` bounds, in seconds, how long a key waits for another session that works on it.
    A session that stands still amid a transaction, because its process was frozen or its host has
    gone, is ended by the server some time after `handler_timeout`: its locks must not stay.
    """

    def __init__(
        self, inbox: Inbox, *, name: str, lock_timeout: float, handler_timeout: float | None
    ) -> None:
        self._url = inbox.database_url or ""
        self._parameters = connect_parameters(
            inbox.database_url, name=name, stage="consumer", primary=True
        )
        idle = 0 if handler_timeout is None else int((handler_timeout + _GRACE) * 1000)
        self._settings = {
            "default_transaction_isolation": "read committed",
            "default_transaction_read_only": "off",
            "lock_timeout": f"{max(1, int(lock_timeout * 1000))}ms",
            "idle_in_transaction_session_timeout": f"{idle}ms",
            "tcp_keepalives_idle": "10",
            "tcp_keepalives_interval": "5",
            "tcp_keepalives_count": "3",
        }
        self._is_lost = False

    async def open_async(self) -> psycopg.AsyncConnection[Any]:
        """Open a connection, trying until it can be had."""
        return await self.until_open(self._try_async)

    def open_sync(self) -> psycopg.Connection[Any]:
        """Try once to open a connection; raises psycopg.OperationalError."""
        conn = psycopg.connect(self._url, autocommit=True, **self._parameters)
        try:
            conn.execute(*set_config(self._settings, local=False))
        except BaseException:
            conn.close()
            raise
        return conn

    async def until_open(self, attempt: Callable[[], Awaitable[C]]) -> C:
        """Call `attempt` with growing pauses until it returns."""
        wait = _FIRST_WAIT
        while True:
            try:
                opened = await attempt()
            except psycopg.OperationalError as error:
                self._say_lost(error)
                await asyncio.sleep(wait * (1 + random.random() / 4))  # noqa: S311 - spreads reconnects
                wait = min(wait * 2, _LONGEST_WAIT)
            else:
                if self._is_lost:
                    self._is_lost = False
                    _log.info("the consumer's database is back")
                return opened

    async def _try_async(self) -> psycopg.AsyncConnection[Any]:
        conn = await psycopg.AsyncConnection.connect(self._url, autocommit=True, **self._parameters)
        try:
            await conn.execute(*set_config(self._settings, local=False))
        except BaseException:
            await conn.close()
            raise
        return conn

    def _say_lost(self, error: psycopg.Error) -> None:
        if not self._is_lost:
            self._is_lost = True
            _log.warning(
                "the consumer's database cannot be reached (%s); messages wait, trying again until "
                "it is back",
                first_line(error),
            )


def is_lost(error: BaseException, conn: Any) -> bool:
    """Whether the connection is of no use any more."""
    if conn is not None and conn.closed:
        return True
    cause = _cause(error)
    return cause is not None and (
        (cause.sqlstate or "").startswith("08") or cause.sqlstate in _LOST
    )


def is_transient(error: BaseException) -> bool:
    """Whether the same transaction may well succeed when it is run again."""
    cause = _cause(error)
    return cause is not None and cause.sqlstate in _TRANSIENT


def is_locked(error: BaseException) -> bool:
    """Whether another session kept a lock for longer than `lock_timeout`."""
    cause = _cause(error)
    return cause is not None and cause.sqlstate == _LOCKED


def _cause(error: BaseException) -> psycopg.Error | None:
    """Return the database's error behind an error, which a handler may have wrapped."""
    seen: BaseException | None = error
    for _ in range(10):
        if seen is None or isinstance(seen, psycopg.Error):
            return seen
        seen = seen.__cause__
    return None
