"""Tells open pages that there is something new: one look at the database for all of them."""

from __future__ import annotations

import asyncio
import hashlib
import time
from typing import TYPE_CHECKING

from psycopg.rows import tuple_row
from starlette.concurrency import run_in_threadpool

from bridge.database.statements import load
from bridge.errors import OutboxError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bridge.console.connections import ReadConnections

_KEEPALIVE_SECONDS = 15.0
_MOST_LISTENERS = 200
_LOAD_SHARE = 0.05
"""The share of time that looking may take: where a look is slow, the looks are rarer."""
_RETRY_MS = 3000
DOWN = "down"


class Pulse:
    """Looks every so often while somebody listens, and sends a digest when it is another one."""

    def __init__(self, reads: ReadConnections, interval: float) -> None:
        self._reads = reads
        self._interval = interval
        self._listeners = 0
        self._digest = ""
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._stopped = False

    @property
    def is_full(self) -> bool:
        """Tell whether no more listeners are taken; pages ask by themselves then."""
        return self._listeners >= _MOST_LISTENERS

    async def listen(self) -> AsyncIterator[bytes]:
        """Yield server-sent events until the listener leaves or the console stops."""
        self._listeners += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look_again_and_again())
        try:
            yield f"retry: {_RETRY_MS}\n\n".encode()
            told = ""
            while not self._stopped:
                changed = self._changed
                if self._digest and self._digest != told:
                    told = self._digest
                    yield f"event: digest\ndata: {told}\n\n".encode()
                try:
                    await asyncio.wait_for(changed.wait(), _KEEPALIVE_SECONDS)
                except TimeoutError:
                    yield b": still here\n\n"
        finally:
            self._listeners -= 1

    def stop(self) -> None:
        """Let every listener go; to be called in the event loop's thread."""
        self._stopped = True
        if self._task is not None:
            self._task.cancel()
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _look_again_and_again(self) -> None:
        while self._listeners and not self._stopped:
            began = time.monotonic()
            digest = await run_in_threadpool(self._look)
            if digest != self._digest:
                self._digest = digest
                self._wake()
            took = time.monotonic() - began
            await asyncio.sleep(max(self._interval, took / _LOAD_SHARE))

    def _look(self) -> str:
        try:
            with self._reads.reading() as conn, conn.cursor(row_factory=tuple_row) as cursor:
                found = cursor.execute(load("read_pulse", self._reads.schema)).fetchone()
        except OutboxError:
            return DOWN
        return hashlib.sha256(repr(found).encode()).hexdigest()[:16]
