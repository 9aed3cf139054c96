"""What the audit holds, as the tests look at it."""

from __future__ import annotations

from typing import Any, NamedTuple

import psycopg

Conn = psycopg.Connection[Any]


class Entry(NamedTuple):
    outbox_id: int | None
    action_name: str
    reason: str
    changed_by: str
    source: str
    before: dict[str, Any]
    after: dict[str, Any]


def entries(conn: Conn, outbox_id: int | None = None) -> list[Entry]:
    return [
        Entry(*row)
        for row in conn.execute(
            "select outbox_id, action_name, reason, changed_by, source, before_state, after_state "
            "from app_outbox_audit where %s::bigint is null or outbox_id = %s order by audit_id",
            [outbox_id, outbox_id],
        )
    ]


def columns(conn: Conn, outbox_id: int, names: str) -> tuple[Any, ...]:
    row = conn.execute(
        f"select {names} from app_outbox where outbox_id = %s", [outbox_id]
    ).fetchone()
    assert row is not None
    return tuple(row)


def everything(conn: Conn) -> list[Any]:
    """The outbox and its side tables, to see that nothing changed."""
    return [
        conn.execute(f"select t from {table} as t order by t::text").fetchall()
        for table in (
            "app_outbox",
            "app_outbox_queue",
            "app_outbox_failed",
            "app_outbox_hold",
            "app_outbox_claim",
            "app_outbox_audit",
            "app_outbox_audit_link",
        )
    ]
