"""A plain SQL connection, and relays without Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import psycopg
import pytest

from tests.claims.desk import Desk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.postgres import PostgresServer

_RESET = """
    select pg_terminate_backend(pid)
    from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid();
    truncate app_outbox, app_outbox_claim, app_outbox_relay restart identity;
    select pg_stat_reset();
    update app_outbox_lane set relay_id = null, epoch = 0;
"""


class OpenDesk(Protocol):
    def __call__(self, name: str = "desk", **relay: Any) -> Desk: ...


class OpenConnection(Protocol):
    def __call__(self, *, autocommit: bool = True) -> psycopg.Connection[tuple[Any, ...]]: ...


@pytest.fixture(scope="module")
def module_database_url(postgres: PostgresServer) -> Iterator[str]:
    """A migrated database for a module: emptying it is faster than creating another."""
    url = postgres.create_database(postgres.migrated_template())
    yield url
    postgres.drop_database(url)


@pytest.fixture
def database_url(module_database_url: str) -> str:
    """The module's database, emptied."""
    with psycopg.connect(module_database_url, autocommit=True) as conn:
        conn.execute(_RESET)
    return module_database_url


@pytest.fixture
def connect(database_url: str) -> Iterator[OpenConnection]:
    """Open further plain connections."""
    opened: list[psycopg.Connection[tuple[Any, ...]]] = []

    def connect(*, autocommit: bool = True) -> psycopg.Connection[tuple[Any, ...]]:
        opened.append(psycopg.connect(database_url, autocommit=autocommit))
        return opened[-1]

    yield connect
    for conn in opened:
        conn.close()


@pytest.fixture
def conn(connect: OpenConnection) -> psycopg.Connection[tuple[Any, ...]]:
    """A plain connection in autocommit."""
    return connect()


@pytest.fixture
def open_desk(database_url: str) -> Iterator[OpenDesk]:
    """Register relays; those that still live at the end leave."""
    desks: list[Desk] = []

    def open_desk(name: str = "desk", **relay: Any) -> Desk:
        desks.append(Desk(database_url, name, **relay))
        return desks[-1]

    yield open_desk
    for desk in desks:
        desk.close()


@pytest.fixture
def desk(open_desk: OpenDesk) -> Desk:
    """One registered relay."""
    return open_desk()
