"""Reads the audit: who did what to which row, when and why."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003 - fields' types, read by tools at run time
from typing import TYPE_CHECKING, Any

from psycopg.rows import class_row

from bridge.database.statements import load
from bridge.inspection import MAX_ID
from bridge.operations.versions import needs_schema

if TYPE_CHECKING:
    import psycopg


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One entry of the audit.

    `outbox_id` is None for actions on no single row (switches). `changed_by` is the actor's name
    as the action gave it, `database_user` the login of its session as the database saw it.
    `position` is its place in the chain. The states hold what differs, and for rows always
    `status` and `claim_count`.
    """

    audit_id: int
    position: int | None
    outbox_id: int | None
    action_name: str
    reason: str
    changed_by: str
    database_user: str | None
    changed_at: datetime
    source: str
    request_id: str | None
    before_state: dict[str, Any] | None
    after_state: dict[str, Any] | None


def list_audit(
    conn: psycopg.Connection[Any],
    schema: str = "public",
    *,
    outbox_id: int | None = None,
    action: str | None = None,
    changed_by: str | None = None,
    source: str | None = None,
    request_id: str | None = None,
    changed_from: datetime | None = None,
    changed_to: datetime | None = None,
    before: int | None = None,
    limit: int = 50,
) -> list[AuditRecord]:
    """List entries, newest first, that match every given filter.

    `changed_by` is an actor or a database user. `before` is an audit_id, left out: continue with
    the last one listed. Raises SchemaError where the schema is older than actions, and psycopg's
    errors.
    """
    parameters = {
        "outbox_id": outbox_id,
        "action": action,
        "changed_by": changed_by,
        "source": source,
        "request_id": request_id,
        "changed_from": changed_from,
        "changed_to": changed_to,
        "before": MAX_ID if before is None else before,
        "row_limit": limit,
    }
    with needs_schema(schema, "audit"), conn.cursor(row_factory=class_row(AuditRecord)) as cursor:
        return cursor.execute(load("list_audit_entries", schema), parameters).fetchall()
