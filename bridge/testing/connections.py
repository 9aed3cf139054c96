"""Runs statements on whatever connection a test has; its library alone is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg.rows import tuple_row

from bridge.enqueue_steps import Row, Step, Steps, run_steps, run_steps_async
from bridge.errors import TransactionStateError
from bridge.write_failures import translate

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def run(connection: Any, steps: Steps[T], schema: str) -> T:
    """Run the statements on a connection of psycopg, SQLAlchemy or Django, or a Session.

    Raises TransactionStateError for other objects and for asynchronous ones.
    """
    if isinstance(connection, psycopg.Connection):
        return _run_psycopg(connection, steps, schema)
    runner: Callable[[Any, Steps[T], str], T]
    if _is_of(connection, "sqlalchemy") and not _is_of(connection, "sqlalchemy.ext.asyncio"):
        from bridge.integrations.sqlalchemy import run as runner  # noqa: PLC0415 - see the module
    elif _is_of(connection, "django"):
        from bridge.integrations.django.transactions import run as runner  # noqa: PLC0415 - likewise
    else:
        raise TransactionStateError(
            f"expected a connection of psycopg, SQLAlchemy or Django, or a Session, not "
            f"{type(connection).__name__}; for an asynchronous one: "
            "await outbox.seen_by_async(connection)"
        )
    return runner(connection, steps, schema)


async def run_async(connection: Any, steps: Steps[T], schema: str) -> T:
    """Do what `run` does, on asynchronous connections of psycopg, SQLAlchemy and asyncpg."""
    if isinstance(connection, psycopg.AsyncConnection):
        return await _run_psycopg_async(connection, steps, schema)
    if _is_of(connection, "sqlalchemy.ext.asyncio"):
        from bridge.integrations import sqlalchemy  # noqa: PLC0415 - see the module

        return await sqlalchemy.run_async(connection, steps, schema)
    if _is_of(connection, "asyncpg"):
        from bridge.integrations import asyncpg  # noqa: PLC0415 - likewise

        return await asyncpg.run(connection, steps, schema)
    raise TransactionStateError(
        f"expected an asynchronous connection of psycopg, SQLAlchemy or asyncpg, or an "
        f"AsyncSession, not {type(connection).__name__}; for others: outbox.seen_by(connection)"
    )


def _is_of(connection: object, library: str) -> bool:
    return any(
        base.__module__ == library or base.__module__.startswith(f"{library}.")
        for base in type(connection).__mro__
    )


def _run_psycopg(conn: psycopg.Connection[Any], steps: Steps[T], schema: str) -> T:
    cursor = psycopg.Cursor(conn, row_factory=tuple_row)

    def execute(step: Step) -> list[Row]:
        return cursor.execute(step.statement, step.parameters).fetchall()

    try:
        return run_steps(steps, execute)
    except psycopg.Error as error:
        raise translate(error, schema) or error from error


async def _run_psycopg_async(conn: psycopg.AsyncConnection[Any], steps: Steps[T], schema: str) -> T:
    cursor = psycopg.AsyncCursor(conn, row_factory=tuple_row)

    async def execute(step: Step) -> list[Row]:
        await cursor.execute(step.statement, step.parameters)
        return await cursor.fetchall()

    try:
        return await run_steps_async(steps, execute)
    except psycopg.Error as error:
        raise translate(error, schema) or error from error
