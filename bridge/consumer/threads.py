"""A thread for handlers that are no coroutines, with a connection of its own."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.consumer.database import Database

T = TypeVar("T")

_CANCEL_SECONDS = 2.0


class AbandonedError(Exception):
    """The thread's work was given up; what it did is rolled back."""


class HandlerThread:
    """Runs one call at a time. A daemon: a handler that never returns does not keep the process.

    Python cannot end a thread: `abandon` interrupts its statement, forbids its commit, and leaves
    it alone; a new thread takes its place.
    """

    def __init__(self, database: Database | None) -> None:
        self.conn: psycopg.Connection[Any] | None = None
        self.is_abandoned = False
        self._database = database
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True, name="outbox-bridge-handler")
        self._thread.start()

    async def run(self, call: Callable[[], T]) -> T:
        """Run a call in the thread and return its result; contextvars travel with it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()

        def settle(result: T | None, error: BaseException | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]  # None is a T where call says so

        def work() -> None:
            result: T | None = None
            error: BaseException | None = None
            try:
                result = context.run(call)
            except StopIteration as stray:
                error = RuntimeError(f"the handler raised {stray!r}")
            except BaseException as raised:  # noqa: BLE001 - handed to the worker
                error = raised
            # Where the loop has ended, nobody waits any more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, result, error)

        self._calls.put(work)
        return await future

    async def connect(self) -> None:
        """Open the thread's connection, trying until it can be had."""
        if self._database is None or (self.conn is not None and not self.conn.closed):
            return
        database = self._database

        def open_() -> None:
            self.conn = database.open_sync()

        await database.until_open(lambda: self.run(open_))

    def discard(self) -> None:
        """Close the connection; the next `connect` opens another."""
        if self.conn is not None:
            self.conn.close()
            self.conn = None

    def check_commit(self) -> None:
        """Raise AbandonedError where the work was given up meanwhile."""
        if self.is_abandoned:
            raise AbandonedError("the partition went to another consumer, or the time was up")

    def abandon(self) -> None:
        """Give up what runs: its statement is interrupted, its transaction not committed."""
        self.is_abandoned = True
        conn = self.conn
        if conn is not None and not conn.closed:
            threading.Thread(target=_interrupt, args=(conn,), daemon=True).start()
        self.close()

    def close(self) -> None:
        """Let the thread end when it is through with what it does, and close its connection."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
        self.discard()


def _interrupt(conn: psycopg.Connection[Any]) -> None:
    # It may have ended meanwhile, or the server may have.
    with contextlib.suppress(psycopg.Error):
        conn.cancel_safe(timeout=_CANCEL_SECONDS)
