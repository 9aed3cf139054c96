"""Enqueueing through SQLAlchemy 2: Session, Connection and their asynchronous twins.

Drivers: psycopg, psycopg2, asyncpg. Statements go through SQLAlchemy, so that its logging, its
events and its idea of the transaction hold. The rules, results and errors are those of
`bridge.enqueue`; what says nothing about the message (a lost connection, a deadlock, a
serialization failure) reaches the caller's own retry as SQLAlchemy raises it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError, InvalidRequestError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from bridge.enqueue_plan import DEFAULT_SCHEMA, EnqueueArguments, plan_many, plan_one
from bridge.enqueue_steps import EnqueueResult, Row, Step, Steps, run_steps
from bridge.errors import TransactionStateError
from bridge.integrations.placeholders import numbered
from bridge.write_failures import translate, translate_driver_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Unpack

    from bridge.enqueue_plan import EnqueueOptions
    from bridge.message import Message

    Target = Session | scoped_session[Any] | Connection
    AsyncTarget = AsyncSession | async_scoped_session[Any] | AsyncConnection

T = TypeVar("T")

__all__ = ["enqueue", "enqueue_async", "enqueue_many", "enqueue_many_async", "run", "run_async"]


def enqueue(target: Target, **arguments: Unpack[EnqueueArguments]) -> EnqueueResult:
    """Write one message in the transaction of a Session or Connection; see `bridge.enqueue`.

    Takes its keyword arguments but `allow_autocommit`. A Session is flushed first where its
    autoflush is on, as before a query: the row that was changed is then locked before the message
    gets its id, which the order per ordering key rests on.
    """
    connection = _writable(target)
    return _run(connection, plan_one(**arguments), arguments.get("schema", DEFAULT_SCHEMA))


def enqueue_many(
    target: Target,
    messages: Iterable[Message | Mapping[str, Any]],
    **options: Unpack[EnqueueOptions],
) -> list[EnqueueResult]:
    """Write many messages with one INSERT, all or nothing; see `bridge.enqueue_many`."""
    connection = _writable(target)
    return _run(connection, plan_many(messages, **options), options.get("schema", DEFAULT_SCHEMA))


async def enqueue_async(
    target: AsyncTarget, **arguments: Unpack[EnqueueArguments]
) -> EnqueueResult:
    """Do what `enqueue` does, on an AsyncSession or AsyncConnection."""
    return await _synchronous(target).run_sync(enqueue, **arguments)


async def enqueue_many_async(
    target: AsyncTarget,
    messages: Iterable[Message | Mapping[str, Any]],
    **options: Unpack[EnqueueOptions],
) -> list[EnqueueResult]:
    """Do what `enqueue_many` does, on an AsyncSession or AsyncConnection."""
    return await _synchronous(target).run_sync(enqueue_many, messages, **options)


def run(target: Target, steps: Steps[T], schema: str) -> T:
    """Run the statements of `bridge.enqueue_steps` in whatever state the transaction is."""
    return _run(_connection_of(target), steps, schema)


async def run_async(target: AsyncTarget, steps: Steps[T], schema: str) -> T:
    """Do what `run` does, on an AsyncSession or AsyncConnection."""
    return await _synchronous(target).run_sync(run, steps, schema)


def _run(connection: Connection, steps: Steps[T], schema: str) -> T:
    is_numbered = connection.dialect.paramstyle == "numeric_dollar"

    def execute(step: Step) -> list[Row]:
        if step.parameters is None:
            connection.exec_driver_sql(step.statement.decode())
            return []
        if is_numbered:
            statement = numbered(step.statement)
            values = tuple(step.parameters[name] for name in statement.names)
            result = connection.exec_driver_sql(statement.text, values)
        else:
            result = connection.exec_driver_sql(step.statement.decode(), step.parameters)
        return [tuple(row) for row in result]

    try:
        return run_steps(steps, execute)
    except UnicodeEncodeError as error:
        raise translate(error, schema) or error from error
    except DBAPIError as error:
        # SQLAlchemy's face of asyncpg raises errors of its own, from asyncpg's.
        orig = error.orig
        driver = orig.__cause__ if is_numbered and orig and orig.__cause__ else orig
        translated = translate_driver_error(driver, schema)
        if translated is None:
            raise
        raise translated from error
    except InvalidRequestError as error:
        raise TransactionStateError(f"the transaction cannot be used: {error}") from error


def _writable(target: Target) -> Connection:
    connection = _connection_of(target)
    if connection.connection.dbapi_connection.autocommit:  # type: ignore[union-attr] # every driver has it
        raise TransactionStateError(
            "the connection is in autocommit, so the message would be committed apart from the "
            'business data: use an engine without isolation_level="AUTOCOMMIT"'
        )
    if not isinstance(target, Connection) and target.autoflush:
        target.flush()
    return connection


def _connection_of(target: object) -> Connection:
    connection: Connection
    try:
        if isinstance(target, (Session, scoped_session)):
            connection = target.connection()
        elif isinstance(target, Connection):
            connection = target
        else:
            raise _not_a_target(target)
        if connection.closed or connection.invalidated:
            raise TransactionStateError(
                "the connection is closed; enqueue before it is closed, in the transaction that "
                "changes the business data"
            )
    except InvalidRequestError as error:
        raise TransactionStateError(f"the session cannot be used: {error}") from error
    dialect = connection.dialect
    if dialect.name != "postgresql" or dialect.paramstyle not in {"pyformat", "numeric_dollar"}:
        raise TransactionStateError(
            f"the outbox is written through psycopg, psycopg2 or asyncpg, and this connection is "
            f"{dialect.name}+{dialect.driver}; create the engine with postgresql+psycopg://"
        )
    return connection


def _synchronous(target: AsyncTarget) -> AsyncSession | AsyncConnection:
    if isinstance(target, async_scoped_session):
        return target()  # type: ignore[no-any-return] # typed by its factory
    if isinstance(target, (AsyncSession, AsyncConnection)):
        return target
    raise _not_a_target(target)


def _not_a_target(target: object) -> TransactionStateError:
    if isinstance(target, (AsyncSession, async_scoped_session, AsyncConnection)):
        return TransactionStateError(
            f"{type(target).__name__} is asynchronous: await enqueue_async or enqueue_many_async"
        )
    if isinstance(target, (Session, scoped_session, Connection)):
        return TransactionStateError(
            f"{type(target).__name__} is synchronous: call enqueue or enqueue_many"
        )
    hint = "for a driver's own connection there are bridge.enqueue and its kin"
    if isinstance(target, Engine) or hasattr(target, "sync_engine"):
        hint = "open a transaction with engine.begin() and pass its connection"
    return TransactionStateError(
        f"expected a SQLAlchemy session or connection, not {type(target).__name__}; {hint}"
    )
