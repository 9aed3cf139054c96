"""One database for a module, emptied for each test, the audit too; relays without Kafka."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from bridge.operations import Actor
from tests.claims.conftest import (  # noqa: F401 - fixtures
    _RESET,
    conn,
    connect,
    desk,
    module_database_url,
    open_desk,
)

_RESET_AUDIT = """
    set session_replication_role = replica;
    truncate app_outbox_audit, app_outbox_audit_link restart identity;
    update app_outbox_audit_head set position = 0, hash = decode(repeat('00', 32), 'hex');
    truncate app_outbox_control;
    reset session_replication_role;
"""

WHY: dict[str, Any] = {"reason": "a test", "actor": Actor("ann@desk", "cli", "request-1")}


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators who wait for a lock as long as a busy machine needs."""
    monkeypatch.setattr("bridge.operations.bulk._LOCK_TIMEOUT", "60s")


@pytest.fixture
def database_url(module_database_url: str) -> str:  # noqa: F811 - the fixture imported above
    """The module's database, emptied."""
    with psycopg.connect(module_database_url, autocommit=True) as connection:
        connection.execute(_RESET)
        connection.execute(_RESET_AUDIT)
    return module_database_url
