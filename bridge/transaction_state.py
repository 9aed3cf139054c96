"""Whether what the application passes can carry a message: a connection, open, in a transaction."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus

from bridge.errors import TransactionStateError

SyncTarget = psycopg.Connection[Any] | psycopg.Cursor[Any]
AsyncTarget = psycopg.AsyncConnection[Any] | psycopg.AsyncCursor[Any]

_HINTS = {
    "driver_connection": "pass its driver_connection (SQLAlchemy: "
    "session.connection().connection.driver_connection)",
    "connection": "pass the psycopg connection inside it (Django: connection.connection)",
    "getconn": "take a connection from the pool: with pool.connection() as conn",
}
_INTEGRATIONS = frozenset({"asyncpg", "django", "sqlalchemy"})


def connection_of(target: object) -> psycopg.Connection[Any]:
    """Return the connection of a psycopg connection or cursor; raise TransactionStateError."""
    if isinstance(target, psycopg.Connection):
        return target
    if isinstance(target, psycopg.ServerCursor):
        raise _named_cursor()
    if isinstance(target, psycopg.Cursor):
        _check_open(target)
        return target.connection
    if isinstance(target, (psycopg.AsyncConnection, psycopg.AsyncCursor)):
        raise TransactionStateError(
            f"{type(target).__name__} is asynchronous: await enqueue_async or enqueue_many_async"
        )
    raise _not_a_connection(target)


def async_connection_of(target: object) -> psycopg.AsyncConnection[Any]:
    """Return the connection of an asynchronous connection or cursor."""
    if isinstance(target, psycopg.AsyncConnection):
        return target
    if isinstance(target, psycopg.AsyncServerCursor):
        raise _named_cursor()
    if isinstance(target, psycopg.AsyncCursor):
        _check_open(target)
        return target.connection
    if isinstance(target, (psycopg.Connection, psycopg.Cursor)):
        raise TransactionStateError(
            f"{type(target).__name__} is synchronous: call enqueue or enqueue_many"
        )
    raise _not_a_connection(target)


def needs_sync(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Tell whether an autocommit connection in pipeline mode must sync to show its state.

    Until then libpq does not know whether a BEGIN on its way was obeyed.
    """
    return not conn.closed and conn.autocommit and _in_pipeline(conn)


def check_transaction(
    conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], *, allow_autocommit: bool
) -> bool:
    """Return whether a statement now would be a transaction of its own (autocommit, allowed).

    Raises TransactionStateError where the connection is closed, busy, failed, or in autocommit
    without leave.
    """
    if conn.closed:
        raise TransactionStateError(
            "the connection is closed; enqueue before it is closed, in the transaction that "
            "changes the business data"
        )
    status = conn.pgconn.transaction_status
    if status == TransactionStatus.INTRANS:
        return False
    if status == TransactionStatus.INERROR:
        raise TransactionStateError(
            "the transaction has failed already (an earlier statement raised an error): roll it "
            "back and run it again"
        )
    if status == TransactionStatus.ACTIVE:
        if _in_pipeline(conn):
            return False
        raise TransactionStateError(
            "the connection is in the middle of another command (COPY, stream(), or another "
            "thread): finish it first"
        )
    if conn.autocommit:
        if not allow_autocommit:
            raise TransactionStateError(
                "the connection is in autocommit, so the message would be committed apart from the "
                "business data: use `with conn.transaction():` around both, or pass "
                "allow_autocommit=True"
            )
        return True
    return False


def _in_pipeline(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    return conn.pgconn.pipeline_status != PipelineStatus.OFF  # a plain int: `is` would not do


def _check_open(cursor: SyncTarget | AsyncTarget) -> None:
    if cursor.closed:
        raise TransactionStateError("the cursor is closed; pass an open one or its connection")


def _named_cursor() -> TransactionStateError:
    return TransactionStateError(
        "a named (server-side) cursor cannot write; pass its connection instead"
    )


def _not_a_connection(target: object) -> TransactionStateError:
    hint = "see psycopg.connect"
    library = type(target).__module__.partition(".")[0]
    if library in _INTEGRATIONS:
        return TransactionStateError(
            f"expected a psycopg connection or cursor, not {type(target).__name__}; for those of "
            f"{library} call bridge.integrations.{library}.enqueue"
        )
    for attribute, text in _HINTS.items():
        if hasattr(target, attribute):
            hint = text
            break
    return TransactionStateError(
        f"expected a psycopg connection or cursor, not {type(target).__name__}; {hint}"
    )
