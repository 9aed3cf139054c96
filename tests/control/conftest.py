"""Connections to the switches, and a relay's view of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import psycopg
import pytest

from bridge.database.session import Session
from bridge.relay.controls import Controls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.postgres import PostgresServer

Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def conn(database_url: str) -> Iterator[Connection]:
    """A plain connection in autocommit."""
    with psycopg.connect(database_url, autocommit=True) as conn:
        yield conn


@pytest.fixture(scope="module")
def shared(postgres: PostgresServer) -> Iterator[Connection]:
    """One database for the tests of a module that leave no switch behind."""
    url = postgres.create_database(postgres.migrated_template())
    with psycopg.connect(url, autocommit=True) as conn:
        yield conn
    postgres.drop_database(url)


class OpenControlsFunction(Protocol):
    def __call__(self, lock_timeout: float = 0.1) -> Controls: ...


@pytest.fixture
def open_controls(database_url: str) -> Iterator[OpenControlsFunction]:
    """Open what a relay has: the switches, read and taken from over a session of its own."""
    sessions: list[Session] = []

    def open_controls(lock_timeout: float = 0.1) -> Controls:
        session = Session(
            database_url,
            schema="public",
            stage="claim",
            relay_name=f"relay-{len(sessions) + 1}",
            lock_timeout=lock_timeout,
        )
        session.open()
        sessions.append(session)
        return Controls(session)

    yield open_controls
    for session in sessions:
        session.close()


@pytest.fixture
def controls(open_controls: OpenControlsFunction) -> Controls:
    """One relay's view."""
    return open_controls()
