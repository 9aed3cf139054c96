"""Enqueueing on an asyncpg connection, inside the transaction that it has open.

The rules, results and errors are those of `bridge.enqueue`; what asyncpg raises for a lost
connection, a deadlock or a serialization failure reaches the caller's own retry as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from bridge.enqueue_plan import DEFAULT_SCHEMA, EnqueueArguments, plan_many, plan_one
from bridge.enqueue_steps import EnqueueResult, Row, Step, Steps, run_steps_async
from bridge.errors import TransactionStateError
from bridge.integrations.placeholders import numbered
from bridge.write_failures import translate_driver_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Unpack

    from bridge.enqueue_plan import EnqueueOptions
    from bridge.message import Message

    Target = asyncpg.Connection[Any] | PoolConnectionProxy[Any]

T = TypeVar("T")

__all__ = ["enqueue", "enqueue_many", "run"]


async def enqueue(conn: Target, **arguments: Unpack[EnqueueArguments]) -> EnqueueResult:
    """Write one message in the transaction that `conn` has open; see `bridge.enqueue`.

    Takes its keyword arguments but `allow_autocommit`: outside `async with conn.transaction()` a
    statement is a transaction of its own, and that raises TransactionStateError.
    """
    _check_transaction(conn)
    return await run(conn, plan_one(**arguments), arguments.get("schema", DEFAULT_SCHEMA))


async def enqueue_many(
    conn: Target,
    messages: Iterable[Message | Mapping[str, Any]],
    **options: Unpack[EnqueueOptions],
) -> list[EnqueueResult]:
    """Write many messages with one INSERT, all or nothing; see `bridge.enqueue_many`."""
    _check_transaction(conn)
    return await run(conn, plan_many(messages, **options), options.get("schema", DEFAULT_SCHEMA))


async def run(conn: Target, steps: Steps[T], schema: str) -> T:
    """Run the statements of `bridge.enqueue_steps`."""

    async def execute(step: Step) -> list[Row]:
        if step.parameters is None:
            await conn.execute(step.statement.decode())
            return []
        statement = numbered(step.statement)
        values = [step.parameters[name] for name in statement.names]
        rows = await conn.fetch(statement.text, *values)
        return [tuple(row) for row in rows]

    try:
        return await run_steps_async(steps, execute)
    except asyncpg.PostgresError as error:
        translated = translate_driver_error(error, schema)
        if translated is None:
            raise
        raise translated from error
    except asyncpg.InterfaceError as error:
        raise TransactionStateError(f"the connection cannot be used: {error}") from error


def _check_transaction(conn: object) -> None:
    if not isinstance(conn, (asyncpg.Connection, PoolConnectionProxy)):
        hint = "take one from the pool: async with pool.acquire() as conn"
        if not isinstance(conn, asyncpg.Pool):
            hint = "see asyncpg.connect; for other drivers there are bridge.enqueue and its kin"
        raise TransactionStateError(
            f"expected an asyncpg connection, not {type(conn).__name__}; {hint}"
        )
    try:
        if conn.is_closed():
            raise TransactionStateError(
                "the connection is closed; enqueue before it is closed, in the transaction that "
                "changes the business data"
            )
        if not conn.is_in_transaction():
            raise TransactionStateError(
                "no transaction is open, so the message would be committed apart from the business "
                "data: use `async with conn.transaction():` around both"
            )
    except asyncpg.InterfaceError as error:  # given back to its pool
        raise TransactionStateError(f"the connection cannot be used: {error}") from error
