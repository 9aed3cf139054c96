from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import psycopg
import pytest

from bridge.database.session import Session
from bridge.relay.pruner import Pruner
from bridge.settings import RetentionSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

Conn = psycopg.Connection[tuple[Any, ...]]

DAY = 86_400.0


@pytest.fixture
def conn(database_url: str) -> Iterator[Conn]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def session(database_url: str) -> Iterator[Session]:
    opened = Session(
        database_url, schema="public", stage="maintain", relay_name="p", lock_timeout=0.1
    )
    opened.open()
    yield opened
    opened.close()


class AddFunction(Protocol):
    def __call__(self, status: str, days: float, count: int = 1, **columns: Any) -> list[int]: ...


@pytest.fixture
def add(conn: Conn) -> AddFunction:
    """Insert rows that reached `status` so many days ago, enqueued an hour before that."""
    keys = iter(range(1_000_000))

    def insert(status: str, days: float, count: int = 1, **columns: Any) -> list[int]:
        prefix = f"k{next(keys)}-"
        names = "".join(f", {name}" for name in columns)
        marks = ", %s" * len(columns)
        rows = conn.execute(
            f"insert into app_outbox (message_key, event_type, destination, status, created_at, "
            f"updated_at, sent_at{names}) select %s || n, 'order.created', 'orders', %s, "
            f"at - interval '1 hour', at, case when %s = 'SENT' then at end{marks} "
            "from generate_series(1, %s) as n, "
            "(select now() - %s * interval '1 day') as t (at) returning outbox_id".encode(),
            [prefix, status, status, *columns.values(), count, days],
        ).fetchall()
        return [row[0] for row in rows]

    return insert


class MakePrunerFunction(Protocol):
    def __call__(self, **settings: Any) -> Pruner: ...


@pytest.fixture
def make_pruner(session: Session) -> MakePrunerFunction:
    def make(**settings: Any) -> Pruner:
        return Pruner(session, RetentionSettings(**settings))

    return make


def ids(conn: Conn, table: str = "app_outbox") -> list[int]:
    rows = conn.execute(f"select outbox_id from {table} order by outbox_id".encode()).fetchall()
    return [row[0] for row in rows]
