"""Reads for people: one consistent snapshot, and database errors in words."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.types.datetime import TimestamptzLoader

from bridge.database.connection import connect, first_line
from bridge.database.ledger import migrate_command
from bridge.errors import DatabaseError, OutboxError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from psycopg.abc import Buffer


_FIRST = datetime.min.replace(tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)


class _ClampingLoader(TimestamptzLoader):
    """Reads times beyond Python's, infinity among them, as the first or last one it knows."""

    def load(self, data: Buffer) -> datetime:
        """Return the time, clamped."""
        try:
            return super().load(data)
        except psycopg.DataError:
            is_early = bytes(data).startswith(b"-") or bytes(data).endswith(b"BC")
            return _FIRST if is_early else _LAST


def clamp_times(conn: psycopg.Connection[Any]) -> None:
    """Let times beyond what Python can hold arrive as the first or last one that it can."""
    conn.adapters.register_loader("timestamptz", _ClampingLoader)


@contextmanager
def reading(
    url: str | None, schema: str, *, stage: str = "cli", connect_timeout: int = 10
) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """Connect in autocommit, with times in UTC, and close at the end.

    Raises DatabaseError, or SchemaError where the outbox tables are missing.
    """
    with connect(url, stage=stage, connect_timeout=connect_timeout) as conn, translated(schema):
        clamp_times(conn)
        conn.execute("set time zone 'UTC'")
        yield conn


@contextmanager
def one_snapshot(conn: psycopg.Connection[Any]) -> Iterator[None]:
    """Let every statement inside see the same moment; it can write nothing.

    The connection must have no transaction open.
    """
    with conn.transaction():
        conn.execute("set transaction isolation level repeatable read, read only")
        yield


@contextmanager
def translated(schema: str) -> Iterator[None]:
    """Turn psycopg's errors into the project's own, so that they never leak."""
    try:
        yield
    except psycopg.Error as error:
        raise in_words(error, schema) from error


def in_words(error: psycopg.Error, schema: str) -> OutboxError:
    """Say what a database error means and what to do next."""
    if isinstance(
        error,
        psycopg.errors.UndefinedTable
        | psycopg.errors.UndefinedColumn
        | psycopg.errors.UndefinedFunction
        | psycopg.errors.InvalidSchemaName,
    ):
        return SchemaError(
            f'the outbox in schema "{schema}" is missing or older than this version '
            f"({first_line(error)}); run: {migrate_command(schema)}"
        )
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return DatabaseError(
            f"{first_line(error)}; grant the database user one of the roles in "
            "schemas/postgres/roles.sql"
        )
    if isinstance(error, psycopg.OperationalError) and error.sqlstate is None:
        return DatabaseError(f"the connection to PostgreSQL was lost: {first_line(error)}")
    return DatabaseError(f"PostgreSQL refused the statement: {first_line(error)}")
