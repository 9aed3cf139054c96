"""Every way into the outbox under one interface, so that one set of promises is tested on all.

Coroutines run on a loop of their own: Django refuses to work inside a running one.
"""

from __future__ import annotations

import asyncio
import importlib.util
from contextlib import contextmanager
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

import asyncpg
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from bridge.integrations import asyncpg as by_asyncpg
from bridge.integrations import sqlalchemy as by_sqlalchemy

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from bridge import EnqueueResult


T = TypeVar("T")


class Undo(Exception):  # noqa: N818 - no error: takes a savepoint back
    """Raised within a savepoint, takes it back."""


class Way:
    """One connection; a transaction begins with the first call and ends with commit or rollback."""

    conn: Any

    def enqueue(self, **arguments: Any) -> EnqueueResult:
        raise NotImplementedError

    def enqueue_many(self, messages: Any, **options: Any) -> list[EnqueueResult]:
        raise NotImplementedError

    def execute(self, statement: str) -> None:
        raise NotImplementedError

    def commit(self) -> None:
        raise NotImplementedError

    def rollback(self) -> None:
        raise NotImplementedError

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class SyncSqlalchemy(Way):
    def __init__(self, url: str, driver: str, *, session: bool) -> None:
        self._engine = create_engine(_named(url, driver))
        self.conn: Any = Session(self._engine) if session else self._engine.connect()

    def enqueue(self, **arguments: Any) -> EnqueueResult:
        return by_sqlalchemy.enqueue(self.conn, **arguments)

    def enqueue_many(self, messages: Any, **options: Any) -> list[EnqueueResult]:
        return by_sqlalchemy.enqueue_many(self.conn, messages, **options)

    def execute(self, statement: str) -> None:
        by_sqlalchemy._connection_of(self.conn).exec_driver_sql(statement)

    def commit(self) -> None:
        self.conn.commit()

    def rollback(self) -> None:
        self.conn.rollback()

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        nested = self.conn.begin_nested()
        try:
            yield
        except Undo:
            nested.rollback()
        else:
            nested.commit()

    def close(self) -> None:
        self.conn.close()
        self._engine.dispose()


class AsyncWay(Way):
    """Runs coroutines in the caller's context, as a task of an application would."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(coroutine, context=copy_context())


class AsyncSqlalchemy(AsyncWay):
    def __init__(self, url: str, driver: str, *, session: bool) -> None:
        super().__init__()
        self._engine = create_async_engine(_named(url, driver))
        self.conn: Any = AsyncSession(self._engine) if session else self._connect()

    def _connect(self) -> Any:
        async def connect() -> Any:
            return await self._engine.connect()

        return self._run(connect())

    def enqueue(self, **arguments: Any) -> EnqueueResult:
        return self._run(by_sqlalchemy.enqueue_async(self.conn, **arguments))

    def enqueue_many(self, messages: Any, **options: Any) -> list[EnqueueResult]:
        return self._run(by_sqlalchemy.enqueue_many_async(self.conn, messages, **options))

    def execute(self, statement: str) -> None:
        def run(target: Any) -> None:
            by_sqlalchemy._connection_of(target).exec_driver_sql(statement)

        self._run(self.conn.run_sync(run))

    def commit(self) -> None:
        self._run(self.conn.commit())

    def rollback(self) -> None:
        self._run(self.conn.rollback())

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        async def begin() -> Any:
            return await self.conn.begin_nested()

        nested = self._run(begin())
        try:
            yield
        except Undo:
            self._run(nested.rollback())
        else:
            self._run(nested.commit())

    def close(self) -> None:
        self._run(self.conn.close())
        self._run(self._engine.dispose())
        self._runner.close()


class Asyncpg(AsyncWay):
    def __init__(self, url: str) -> None:
        super().__init__()
        self.conn: Any = self._run(asyncpg.connect(url))
        self._transaction: Any = None

    def _begun(self) -> Any:
        if self._transaction is None:
            self._transaction = self.conn.transaction()
            self._run(self._transaction.start())
        return self.conn

    def enqueue(self, **arguments: Any) -> EnqueueResult:
        return self._run(by_asyncpg.enqueue(self._begun(), **arguments))

    def enqueue_many(self, messages: Any, **options: Any) -> list[EnqueueResult]:
        return self._run(by_asyncpg.enqueue_many(self._begun(), messages, **options))

    def execute(self, statement: str) -> None:
        self._run(self._begun().execute(statement))

    def commit(self) -> None:
        transaction, self._transaction = self._transaction, None
        self._run(transaction.commit())

    def rollback(self) -> None:
        transaction, self._transaction = self._transaction, None
        self._run(transaction.rollback())

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        nested = self._begun().transaction()
        self._run(nested.start())
        try:
            yield
        except Undo:
            self._run(nested.rollback())
        else:
            self._run(nested.commit())

    def close(self) -> None:
        self._run(self.conn.close())
        self._runner.close()


class Django(Way):
    def __init__(self, url: str) -> None:
        from tests.integrations.django_project import connect  # noqa: PLC0415 - configures Django

        self.conn = connect(url)
        self._atomic: Any = None

    def _begun(self) -> None:
        from django.db import transaction  # noqa: PLC0415 - see above

        if self._atomic is None:
            self._atomic = transaction.atomic()
            self._atomic.__enter__()

    def enqueue(self, **arguments: Any) -> EnqueueResult:
        from bridge.integrations.django import enqueue  # noqa: PLC0415 - see above

        self._begun()
        return enqueue(**arguments)

    def enqueue_many(self, messages: Any, **options: Any) -> list[EnqueueResult]:
        from bridge.integrations.django import enqueue_many  # noqa: PLC0415 - see above

        self._begun()
        return enqueue_many(messages, **options)

    def execute(self, statement: str) -> None:
        self._begun()
        with self.conn.cursor() as cursor:
            cursor.execute(statement)

    def commit(self) -> None:
        atomic, self._atomic = self._atomic, None
        atomic.__exit__(None, None, None)

    def rollback(self) -> None:
        self.conn.set_rollback(True)
        self.commit()

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        from django.db import transaction  # noqa: PLC0415 - see above

        self._begun()
        try:
            with transaction.atomic():
                yield
        except Undo:
            pass

    def close(self) -> None:
        if self._atomic is not None:
            self.rollback()
        self.conn.close()


def _named(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://", 1)


WAYS: dict[str, Callable[[str], Way]] = {
    "sqlalchemy-connection-psycopg": lambda url: SyncSqlalchemy(url, "psycopg", session=False),
    "sqlalchemy-session-psycopg": lambda url: SyncSqlalchemy(url, "psycopg", session=True),
    "sqlalchemy-asyncsession-psycopg": lambda url: AsyncSqlalchemy(url, "psycopg", session=True),
    "sqlalchemy-asyncconnection-asyncpg": lambda url: AsyncSqlalchemy(
        url, "asyncpg", session=False
    ),
    "sqlalchemy-asyncsession-asyncpg": lambda url: AsyncSqlalchemy(url, "asyncpg", session=True),
    "asyncpg": Asyncpg,
    "django": Django,
}
if importlib.util.find_spec("psycopg2"):
    WAYS["sqlalchemy-session-psycopg2"] = lambda url: SyncSqlalchemy(url, "psycopg2", session=True)
