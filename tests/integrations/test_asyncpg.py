"""What is asyncpg's own: pools, codecs of the application, connections that cannot carry."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import asyncpg
import psycopg
import pytest

from bridge import Message, TransactionStateError
from bridge.integrations.asyncpg import enqueue, enqueue_many
from bridge.integrations.placeholders import numbered
from tests.enqueue.messages import fields, keys
from tests.fixtures.postgres import on_one_server
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    Pool = asyncpg.Pool[asyncpg.Record]

Connection = psycopg.Connection[tuple[Any, ...]]

pytestmark = [on_one_server, pytest.mark.usefixtures("postgres")]


async def _set_codecs(conn: asyncpg.Connection[Any]) -> None:
    for name in ("json", "jsonb"):
        await conn.set_type_codec(name, schema="pg_catalog", encoder=json.dumps, decoder=json.loads)


@pytest.fixture
async def pool(outbox_url: str) -> AsyncIterator[Pool]:
    """A pool as applications have it: json values are encoded and decoded by codecs."""
    made = await asyncpg.create_pool(outbox_url, min_size=1, max_size=2, init=_set_codecs)
    yield made
    made.terminate()


async def test_codecs_of_the_application_do_not_matter(pool: Pool, observer: Connection) -> None:
    async with pool.acquire() as conn, conn.transaction():
        await enqueue(conn, **fields("a"), payload={"a": 1}, headers={"h": "x"})
        await enqueue_many(conn, [Message(**fields("b"), payload={"a": 1}, headers={"h": "x"})])
        assert not (await enqueue(conn, **fields("a"), payload={"a": 1})).differs
    rows = observer.execute("select payload_json, headers from app_outbox").fetchall()
    assert rows == [({"a": 1}, {"h": "x"})] * 2


async def test_without_a_transaction_it_is_refused(pool: Pool, observer: Connection) -> None:
    async with pool.acquire() as conn:
        with pytest.raises(TransactionStateError, match=r"async with conn\.transaction\(\)"):
            await enqueue(conn, **fields("a"), payload={})
        with pytest.raises(TransactionStateError, match="no transaction is open"):
            await enqueue_many(conn, [Message(**fields("a"), payload={})])
        await conn.execute("begin")  # by hand is a transaction, too
        await enqueue(conn, **fields("b"), payload={})
        await conn.execute("commit")
    assert keys(observer) == ["b"]


async def test_closed_released_and_busy_connections_are_refused(
    pool: Pool, outbox_url: str, observer: Connection
) -> None:
    one: dict[str, Any] = {**fields("a"), "payload": {}}
    async with pool.acquire() as conn:
        transaction = conn.transaction()
        await transaction.start()
        observer.execute("select pg_advisory_lock(1)")
        work = asyncio.create_task(conn.execute("select pg_advisory_xact_lock(1)"))
        waiting = "select wait_event from pg_stat_activity where pid = %s"
        pid = conn.get_server_pid()
        await asyncio.to_thread(
            wait_until,
            lambda: observer.execute(waiting, [pid]).fetchone() == ("advisory",),
            "it waits",
        )
        with pytest.raises(TransactionStateError, match="another operation is in progress"):
            await enqueue(conn, **one)
        observer.execute("select pg_advisory_unlock(1)")
        await work
        await transaction.rollback()
    with pytest.raises(TransactionStateError, match="released back to the pool"):
        await enqueue(conn, **one)
    closed = await asyncpg.connect(outbox_url)
    await closed.close()
    with pytest.raises(TransactionStateError, match="connection is closed"):
        await enqueue(closed, **one)


async def test_what_is_no_connection_is_refused(pool: Pool) -> None:
    wrong: Any
    for wrong, hint in ((pool, r"pool\.acquire\(\)"), (None, "asyncpg.connect"), ("x", "see")):
        with pytest.raises(TransactionStateError, match=f"expected an asyncpg.*{hint}"):
            await enqueue(wrong, **fields("a"), payload={})


async def test_lost_connection_reaches_the_callers_own_retry(
    outbox_url: str, observer: Connection
) -> None:
    conn = await asyncpg.connect(outbox_url)
    transaction = conn.transaction()
    await transaction.start()
    observer.execute("select pg_terminate_backend(%s)", [conn.get_server_pid()])
    # Which of the two depends on whether the end has been read yet.
    with pytest.raises((asyncpg.PostgresConnectionError, asyncpg.AdminShutdownError)):
        await enqueue(conn, **fields("a"), payload={})
    conn.terminate()


async def test_behind_a_transaction_pooler_without_prepared_statements(
    outbox_url: str, observer: Connection
) -> None:
    conn = await asyncpg.connect(outbox_url, statement_cache_size=0)
    async with conn.transaction():
        await enqueue(conn, **fields("a"), payload={})
        await enqueue(conn, **fields("a"), payload={})
    await conn.close()
    assert keys(observer) == ["a"]


def test_placeholders_are_numbered_by_name() -> None:
    statement = b'select %(a)s::pg_catalog.jsonb, %(b)s, %(a)s, 100 %% 7 from "x%%y"'
    assert numbered(statement) == (
        'select $1::pg_catalog.text::pg_catalog.jsonb, $2, $1, 100 % 7 from "x%y"',
        ("a", "b"),
    )
