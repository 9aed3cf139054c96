"""Takes messages through inbox and handler, in one transaction, on a worker's connections."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from bridge.consumer.database import InboxError, is_lost
from bridge.consumer.outcomes import PROCESSED, Fate, Outcome
from bridge.consumer.steps import (
    Call,
    Execute,
    Item,
    Steps,
    check_transaction,
    handle_many,
    handle_one,
    keep,
    look_first,
    waves,
)
from bridge.consumer.threads import HandlerThread

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.consumer.database import Database
    from bridge.consumer.inbox import Inbox

T = TypeVar("T")


class Work:
    """The connections of one worker and what it does with them."""

    def __init__(
        self, inbox: Inbox | None, database: Database | None, handler_timeout: float | None
    ) -> None:
        self._inbox = inbox
        self._database = database
        self._timeout = handler_timeout
        self._conn: psycopg.AsyncConnection[Any] | None = None
        self._thread: HandlerThread | None = None

    async def one(self, item: Item) -> Outcome:
        """Process one message; whatever its handler raises passes."""
        if self._inbox is None:
            results = await self._bare([item])
            return PROCESSED if results is None else Outcome(Fate.PROCESSED, results[0])
        if not item.handler.in_transaction:
            return await self._elsewhere(self._inbox, item)
        return await self._in_transaction(handle_one(self._inbox, item), item.handler.is_async)

    async def many(self, items: list[Item]) -> list[Outcome]:
        """Process messages in one transaction: all or none. Their handlers are of one kind."""
        if self._inbox is None:
            for group in waves(items):
                await self._bare(group)
            return [PROCESSED] * len(items)
        steps = handle_many(self._inbox, items)
        return await self._in_transaction(steps, items[0].handler.is_async)

    def drop_lost(self, error: BaseException) -> bool:
        """Close connections that an error shows to be of no use; tell whether there was one."""
        lost = False
        if self._conn is not None and is_lost(error, self._conn):
            conn, self._conn = self._conn, None
            lost = True
            # Not awaited: closing says good-bye to a server that may not listen.
            conn.pgconn.finish()
        thread = self._thread
        if thread is not None and thread.conn is not None and is_lost(error, thread.conn):
            thread.discard()
            lost = True
        return lost

    def abandon(self) -> None:
        """Give up what runs in a thread; a coroutine is cancelled by its task."""
        if self._thread is not None:
            self._thread.abandon()
            self._thread = None

    async def close(self) -> None:
        """Close the connections."""
        if self._thread is not None:
            self._thread.close()
            self._thread = None
        if self._conn is not None:
            conn, self._conn = self._conn, None
            await conn.close()

    # With the handler in the transaction.

    async def _in_transaction(self, steps: Steps[T], is_async: bool) -> T:  # noqa: FBT001 - internal
        if not is_async:
            return await self._in_thread(steps)
        conn = await self._connection()
        async with asyncio.timeout(self._timeout), conn.transaction():
            outcome = await self._drive(steps, conn)
            check_transaction(conn)
        return outcome

    async def _drive(self, steps: Steps[T], conn: psycopg.AsyncConnection[Any]) -> T:
        answer: Any = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                result: T = end.value
                return result
            if isinstance(step, Execute):
                answer = await _execute(conn, step)
            else:
                answer = await self._call(step, conn)

    async def _call(self, step: Call, conn: psycopg.AsyncConnection[Any] | None) -> Any:
        handler = step.handler
        if handler.many:
            await handler.call_many(step.payloads, step.received, conn)
            return None
        return [
            await handler.call(payload, received, conn)
            for payload, received in zip(step.payloads, step.received, strict=True)
        ]

    async def _connection(self) -> psycopg.AsyncConnection[Any]:
        if self._conn is None or self._conn.closed:
            if self._database is None:
                raise AssertionError("an inbox has a database")
            self._conn = await self._database.open_async()
        return self._conn

    # In a thread.

    async def _in_thread(self, steps: Steps[T]) -> T:
        thread = self._handler_thread()
        await thread.connect()

        def run() -> T:
            conn = thread.conn
            if conn is None:
                raise AssertionError("connected above")
            with conn.transaction():
                outcome = self._drive_sync(steps, conn)
                check_transaction(conn)
                thread.check_commit()
            return outcome

        return await self._bounded(thread, run)

    async def _bounded(self, thread: HandlerThread, call: Callable[[], T]) -> T:
        try:
            async with asyncio.timeout(self._timeout):
                return await thread.run(call)
        except TimeoutError:
            if thread is self._thread:
                self.abandon()
            raise

    def _handler_thread(self) -> HandlerThread:
        if self._thread is None:
            self._thread = HandlerThread(self._database)
        return self._thread

    def _drive_sync(self, steps: Steps[T], conn: psycopg.Connection[Any]) -> T:
        answer: Any = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                result: T = end.value
                return result
            if isinstance(step, Execute):
                answer = _execute_sync(conn, step)
            else:
                answer = self._call_sync(step, conn)

    def _call_sync(self, step: Call, conn: psycopg.Connection[Any] | None) -> Any:
        handler = step.handler
        if handler.many:
            handler.call_many(step.payloads, step.received, conn)
            return None
        return [
            handler.call(payload, received, conn)
            for payload, received in zip(step.payloads, step.received, strict=True)
        ]

    # Without transaction: no inbox, or the work is done elsewhere.

    async def _bare(self, items: list[Item]) -> Any:
        handler = items[0].handler
        step = Call(handler, [item.payload for item in items], [item.received for item in items])
        if handler.is_async:
            async with asyncio.timeout(self._timeout):
                return await self._call(step, None)
        thread = self._handler_thread()
        return await self._bounded(thread, lambda: self._call_sync(step, None))

    async def _elsewhere(self, inbox: Inbox, item: Item) -> Outcome:
        """Look, do the work without a transaction, enter the key.

        Where the process dies between work and key, the work is done again: it must be idempotent
        by the key itself, as an API is that takes an Idempotency-Key.
        """
        conn = await self._connection()
        known = await self._drive(look_first(inbox, item), conn)
        if known is not None:
            return known
        results = await self._bare([item])
        result = None if results is None else results[0]
        conn = await self._connection()
        async with conn.transaction():
            return await self._drive(keep(inbox, item, result), conn)


async def _execute(conn: psycopg.AsyncConnection[Any], step: Execute) -> list[Any]:
    try:
        cursor = await conn.execute(step.statement, step.parameters)
        return await cursor.fetchall() if cursor.description else []
    except psycopg.Error as error:
        raise InboxError(f"the inbox cannot be written or read: {error}") from error


def _execute_sync(conn: psycopg.Connection[Any], step: Execute) -> list[Any]:
    try:
        cursor = conn.execute(step.statement, step.parameters)
        return cursor.fetchall() if cursor.description else []
    except psycopg.Error as error:
        raise InboxError(f"the inbox cannot be written or read: {error}") from error
