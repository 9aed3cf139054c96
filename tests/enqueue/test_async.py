"""`enqueue_async` and `enqueue_many_async` keep the promises of their synchronous twins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge import (
    DuplicateKeyMismatch,
    EnqueueResult,
    InvalidMessageError,
    Message,
    TransactionStateError,
    enqueue,
    enqueue_async,
    enqueue_many,
    enqueue_many_async,
)
from tests.enqueue.messages import fields, keys

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Connection = psycopg.Connection[tuple[Any, ...]]
AsyncConnection = psycopg.AsyncConnection[tuple[Any, ...]]


@pytest.fixture
async def aconn(outbox_url: str) -> AsyncIterator[AsyncConnection]:
    async with await psycopg.AsyncConnection.connect(outbox_url) as conn:
        yield conn
        if not conn.closed:
            await conn.rollback()


async def test_commit_rollback_and_savepoint(aconn: AsyncConnection, observer: Connection) -> None:
    await enqueue_async(aconn, **fields("a"), payload={})
    assert keys(observer) == []
    await aconn.rollback()
    async with aconn.transaction():
        await enqueue_async(aconn.cursor(), **fields("b"), payload={})
        async with aconn.transaction():
            await enqueue_many_async(aconn, [Message(**fields("c"), payload={})])
            raise psycopg.Rollback
    assert keys(observer) == ["b"]


async def test_duplicates(aconn: AsyncConnection) -> None:
    first = await enqueue_async(aconn, **fields(), payload={"a": 1})
    again = await enqueue_async(aconn, **fields(), payload={"a": 2})
    assert again == EnqueueResult(first.outbox_id, created=False, differs=True)
    with pytest.raises(DuplicateKeyMismatch):
        await enqueue_async(aconn, **fields(destination="refunds"), payload={})
    with pytest.raises(DuplicateKeyMismatch):
        await enqueue_many_async(
            aconn, [{**fields("a"), "payload": {}}, {**fields(destination="r"), "payload": {}}]
        )
    rows = await (await aconn.execute("select message_key from app_outbox")).fetchall()
    assert rows == [("order-1",)]


async def test_autocommit(aconn: AsyncConnection, observer: Connection) -> None:
    await aconn.set_autocommit(True)
    one: dict[str, Any] = {**fields("a"), "payload": {}}
    with pytest.raises(TransactionStateError, match="autocommit"):
        await enqueue_async(aconn, **one)
    with pytest.raises(TransactionStateError, match="autocommit"):
        await enqueue_many_async(aconn, [one])
    async with aconn.pipeline():
        with pytest.raises(TransactionStateError, match="autocommit"):
            await enqueue_async(aconn, **one)
    await enqueue_async(aconn, **one, allow_autocommit=True)
    await enqueue_many_async(aconn, [{**one, "message_key": "b"}], allow_autocommit=True)
    assert keys(observer) == ["a", "b"]


async def test_bad_input_and_wrong_targets(aconn: AsyncConnection, conn: Connection) -> None:
    one: dict[str, Any] = {**fields("a"), "payload": {}}
    with pytest.raises(InvalidMessageError):
        await enqueue_async(aconn, **{**one, "payload": float("nan")})
    await aconn.execute("set client_encoding to latin1")
    with pytest.raises(InvalidMessageError, match="client_encoding"):
        await enqueue_async(aconn, **{**one, "message_key": "😀"})
    for target in (aconn, aconn.cursor()):
        with pytest.raises(TransactionStateError, match="await enqueue_async"):
            enqueue(target, **one)  # type: ignore[arg-type]
        with pytest.raises(TransactionStateError, match="await enqueue_async"):
            enqueue_many(target, [one])  # type: ignore[arg-type]
    for sync in (conn, conn.cursor()):
        with pytest.raises(TransactionStateError, match="call enqueue or"):
            await enqueue_async(sync, **one)  # type: ignore[arg-type]
    async with aconn.cursor(name="x") as named:
        with pytest.raises(TransactionStateError, match="named"):
            await enqueue_async(named, **one)
    with pytest.raises(TransactionStateError, match="expected a psycopg connection"):
        await enqueue_async(None, **one)  # type: ignore[arg-type]
    await aconn.close()
    with pytest.raises(TransactionStateError, match="closed"):
        await enqueue_async(aconn, **one)
