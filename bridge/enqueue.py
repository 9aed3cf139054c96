"""Writes messages into the outbox, inside the caller's transaction, which it never ends.

A message whose key is known is absorbed: the INSERT does nothing, and a second statement finds the
row that has the key. Two writers at once: the second waits for the first one's commit or rollback.
Under REPEATABLE READ and SERIALIZABLE a key that was committed after the transaction began raises
PostgreSQL's own serialization failure (psycopg.errors.SerializationFailure): run the transaction
again. Errors of the server that say nothing about the message, such as a lost connection or a
deadlock, reach the caller as psycopg raises them, for its own retry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg.rows import tuple_row
from psycopg.types.array import ListBinaryDumper

from bridge.enqueue_plan import DEFAULT_SCHEMA, plan_many, plan_one
from bridge.enqueue_steps import EnqueueResult, Row, Step, Steps, run_steps, run_steps_async
from bridge.message import Message
from bridge.payload import DEFAULT_MAX_PAYLOAD_BYTES
from bridge.transaction_state import (
    AsyncTarget,
    SyncTarget,
    async_connection_of,
    check_transaction,
    connection_of,
    needs_sync,
)
from bridge.write_failures import translate

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import datetime

    from bridge.duplicates import OnDuplicate

T = TypeVar("T")

__all__ = [
    "EnqueueResult",
    "Message",
    "enqueue",
    "enqueue_async",
    "enqueue_many",
    "enqueue_many_async",
]


def enqueue(
    conn: SyncTarget,
    *,
    message_key: str,
    event_type: str,
    destination: str,
    payload: Any,
    content_type: str | None = None,
    headers: Mapping[str, str] | None = None,
    ordering_key: str | None = None,
    not_before: datetime | None = None,
    max_retry_count: int | None = None,
    on_duplicate: OnDuplicate = "error",
    ignore: Collection[str] = (),
    schema: str = DEFAULT_SCHEMA,
    max_payload_bytes: int = DEFAULT_MAX_PAYLOAD_BYTES,
    allow_autocommit: bool = False,
) -> EnqueueResult:
    """Write one message in the transaction that `conn` (a psycopg connection or cursor) has open.

    `payload`: dict, list, dataclass or pydantic model; JSON text as str or bytes, kept byte for
    byte; bytes with a `content_type`; None for a tombstone. At most `max_payload_bytes` of UTF-8.
    `message_key` is the business key (≤ 200 characters): enqueued twice, the second is absorbed.
    Rows that share `destination` and `ordering_key` go out in the order they were enqueued.
    `not_before` is an aware datetime. `on_duplicate` and `ignore`: see DuplicateRule.

    Raises InvalidMessageError, TransactionStateError or DuplicateKeyMismatch, all before anything
    is written; SchemaError where the schema lacks an outbox; psycopg's errors for the rest.
    """
    connection = connection_of(conn)
    _prepare(connection, allow_autocommit=allow_autocommit)
    steps = plan_one(
        message_key=message_key,
        event_type=event_type,
        destination=destination,
        payload=payload,
        content_type=content_type,
        headers=headers,
        ordering_key=ordering_key,
        not_before=not_before,
        max_retry_count=max_retry_count,
        on_duplicate=on_duplicate,
        ignore=ignore,
        schema=schema,
        max_payload_bytes=max_payload_bytes,
    )
    return _run(connection, steps, schema)


def enqueue_many(
    conn: SyncTarget,
    messages: Iterable[Message | Mapping[str, Any]],
    *,
    on_duplicate: OnDuplicate = "error",
    ignore: Collection[str] = (),
    schema: str = DEFAULT_SCHEMA,
    max_payload_bytes: int = DEFAULT_MAX_PAYLOAD_BYTES,
    allow_autocommit: bool = False,
) -> list[EnqueueResult]:
    """Write many messages with one INSERT; the results stand in the order of `messages`.

    Each message is a Message or a mapping with its fields. Ids follow the order of `messages`, rows
    are inserted in the order of their keys, so that two writers with common keys do not deadlock.
    A key that comes twice in `messages` is treated as any other duplicate. Errors are those of
    `enqueue`, and none of the messages is written then.
    """
    connection = connection_of(conn)
    alone = _prepare(connection, allow_autocommit=allow_autocommit)
    steps = plan_many(
        messages,
        on_duplicate=on_duplicate,
        ignore=ignore,
        schema=schema,
        max_payload_bytes=max_payload_bytes,
        savepoint=not alone,
    )
    if alone:
        with connection.transaction():
            return _run(connection, steps, schema, many=True)
    return _run(connection, steps, schema, many=True)


async def enqueue_async(
    conn: AsyncTarget,
    *,
    message_key: str,
    event_type: str,
    destination: str,
    payload: Any,
    content_type: str | None = None,
    headers: Mapping[str, str] | None = None,
    ordering_key: str | None = None,
    not_before: datetime | None = None,
    max_retry_count: int | None = None,
    on_duplicate: OnDuplicate = "error",
    ignore: Collection[str] = (),
    schema: str = DEFAULT_SCHEMA,
    max_payload_bytes: int = DEFAULT_MAX_PAYLOAD_BYTES,
    allow_autocommit: bool = False,
) -> EnqueueResult:
    """Do what `enqueue` does, on an asynchronous psycopg connection or cursor."""
    connection = async_connection_of(conn)
    await _prepare_async(connection, allow_autocommit=allow_autocommit)
    steps = plan_one(
        message_key=message_key,
        event_type=event_type,
        destination=destination,
        payload=payload,
        content_type=content_type,
        headers=headers,
        ordering_key=ordering_key,
        not_before=not_before,
        max_retry_count=max_retry_count,
        on_duplicate=on_duplicate,
        ignore=ignore,
        schema=schema,
        max_payload_bytes=max_payload_bytes,
    )
    return await _run_async(connection, steps, schema)


async def enqueue_many_async(
    conn: AsyncTarget,
    messages: Iterable[Message | Mapping[str, Any]],
    *,
    on_duplicate: OnDuplicate = "error",
    ignore: Collection[str] = (),
    schema: str = DEFAULT_SCHEMA,
    max_payload_bytes: int = DEFAULT_MAX_PAYLOAD_BYTES,
    allow_autocommit: bool = False,
) -> list[EnqueueResult]:
    """Do what `enqueue_many` does, on an asynchronous psycopg connection or cursor."""
    connection = async_connection_of(conn)
    alone = await _prepare_async(connection, allow_autocommit=allow_autocommit)
    steps = plan_many(
        messages,
        on_duplicate=on_duplicate,
        ignore=ignore,
        schema=schema,
        max_payload_bytes=max_payload_bytes,
        savepoint=not alone,
    )
    if alone:
        async with connection.transaction():
            return await _run_async(connection, steps, schema, many=True)
    return await _run_async(connection, steps, schema, many=True)


def _prepare(conn: psycopg.Connection[Any], *, allow_autocommit: bool) -> bool:
    if needs_sync(conn):
        with conn.pipeline():
            pass  # leaving an inner pipeline syncs
    return check_transaction(conn, allow_autocommit=allow_autocommit)


async def _prepare_async(conn: psycopg.AsyncConnection[Any], *, allow_autocommit: bool) -> bool:
    if needs_sync(conn):
        async with conn.pipeline():
            pass
    return check_transaction(conn, allow_autocommit=allow_autocommit)


def _run(conn: psycopg.Connection[Any], steps: Steps[T], schema: str, *, many: bool = False) -> T:
    # A cursor of ours: the caller's may have rows to be read, another row factory or placeholders.
    # Lists in binary: as text, each quote of each payload would be escaped one by one.
    cursor = psycopg.Cursor(conn, row_factory=tuple_row)
    if many:
        cursor.adapters.register_dumper(list, ListBinaryDumper)

    def execute(step: Step) -> list[Row]:
        cursor.execute(step.statement, step.parameters)
        return cursor.fetchall() if step.returns_rows else []

    try:
        return run_steps(steps, execute)
    except (psycopg.Error, UnicodeEncodeError) as error:
        translated = translate(error, schema)
        if translated is None:
            raise
        raise translated from error


async def _run_async(
    conn: psycopg.AsyncConnection[Any], steps: Steps[T], schema: str, *, many: bool = False
) -> T:
    cursor = psycopg.AsyncCursor(conn, row_factory=tuple_row)
    if many:
        cursor.adapters.register_dumper(list, ListBinaryDumper)

    async def execute(step: Step) -> list[Row]:
        await cursor.execute(step.statement, step.parameters)
        return await cursor.fetchall() if step.returns_rows else []

    try:
        return await run_steps_async(steps, execute)
    except (psycopg.Error, UnicodeEncodeError) as error:
        translated = translate(error, schema)
        if translated is None:
            raise
        raise translated from error
