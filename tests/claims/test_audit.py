"""The audit table is append-only."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

Conn = psycopg.Connection[Any]


@pytest.mark.parametrize(
    "statement",
    [
        "update app_outbox_audit set reason = 'other'",
        "update app_outbox_audit set reason = 'other' where false",
        "delete from app_outbox_audit",
        "truncate app_outbox_audit",
        (
            "insert into app_outbox_audit (action_name, reason, changed_by, source) "
            "values ('cancel', '  ', 'me', 'sql')"
        ),
    ],
)
def test_audit_entries_are_written_once_and_need_a_reason(conn: Conn, statement: str) -> None:
    conn.execute(
        "insert into app_outbox_audit (action_name, reason, changed_by, source) "
        "values ('cancel', 'wrong order', 'me', 'sql')"
    )
    before = conn.execute("select * from app_outbox_audit").fetchall()
    with pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.CheckViolation)):
        conn.execute(statement)
    assert conn.execute("select * from app_outbox_audit").fetchall() == before
