from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import tests.integrations.django_project  # noqa: F401 - configures Django before tests import it

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.postgres import PostgresServer

Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture(scope="module")
def module_url(postgres: PostgresServer) -> Iterator[str]:
    """One migrated database for the module's tests."""
    url = postgres.create_database(postgres.migrated_template())
    yield url
    postgres.drop_database(url)


@pytest.fixture
def outbox_url(module_url: str) -> Iterator[str]:
    """The module's database, its outbox emptied after the test."""
    yield module_url
    with psycopg.connect(module_url, autocommit=True) as conn:
        conn.execute("truncate app_outbox, app_outbox_queue restart identity")


@pytest.fixture
def observer(outbox_url: str) -> Iterator[Connection]:
    """A second session, in autocommit: it sees what is committed."""
    with psycopg.connect(outbox_url, autocommit=True) as conn:
        yield conn
