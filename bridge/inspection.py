"""Lists messages and reads everything about one of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003 - a field's type, read by tools at run time
from typing import TYPE_CHECKING, Any
from uuid import UUID  # noqa: TC003 - likewise

import orjson
from psycopg.rows import class_row, tuple_row

from bridge.database.reading import one_snapshot
from bridge.database.statements import load
from bridge.errors import OperationError
from bridge.lifecycle import Status
from bridge.telemetry.context import trace_id_of
from bridge.telemetry.names import TRACEPARENT

if TYPE_CHECKING:
    from collections.abc import Collection

    import psycopg

MAX_ID = 2**63 - 1
_OPEN = frozenset({Status.PENDING, Status.PROCESSING, Status.FAILED})


@dataclass(frozen=True, slots=True)
class ListedMessage:
    """One line of a list. `next_run_at` is text: it may be infinite."""

    outbox_id: int
    status: str
    destination: str
    event_type: str
    message_key: str
    ordering_key: str | None
    created_at: datetime
    next_run_at: str
    retry_count: int
    max_retry_count: int
    claim_count: int
    locked_by: str | None
    sent_at: datetime | None
    last_error_code: str | None
    last_error_msg: str | None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """What an operator did to a row."""

    audit_id: int
    action_name: str
    reason: str
    changed_by: str
    changed_at: datetime
    source: str


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """Everything about one row.

    `payload_text` is the JSON payload's text, `payload_bytes` a pre-encoded one, neither a
    tombstone; both may be cut, `payload_size` (bytes) tells the whole.
    """

    outbox_id: int
    message_key: str
    event_type: str
    destination: str
    ordering_key: str | None
    content_type: str | None
    created_at: datetime
    headers: str
    max_retry_count: int
    retry_count: int
    next_run_at: str
    last_error_code: str | None
    last_error_msg: str | None
    status: str
    claim_count: int
    sent_partition: int
    sent_offset: int
    sent_topic: str | None
    locked_by: str | None
    locked_at: datetime | None
    claim_id: UUID | None
    sent_at: datetime | None
    updated_at: datetime
    payload_text: str | None
    payload_bytes: bytes | None
    payload_size: int

    @property
    def payload_kind(self) -> str:
        """`json`, `bytes`, or `tombstone` where the record has no value at all."""
        if self.payload_text is not None:
            return "json"
        return "tombstone" if self.payload_bytes is None else "bytes"

    @property
    def is_cut(self) -> bool:
        """Tell whether the payload is longer than what was read of it."""
        if self.payload_text is not None:
            return len(self.payload_text.encode()) < self.payload_size
        return len(self.payload_bytes or b"") < self.payload_size

    @property
    def header_pairs(self) -> dict[str, Any]:
        """The row's own headers."""
        headers: dict[str, Any] = orjson.loads(self.headers)
        return headers

    @property
    def trace_id(self) -> str | None:
        """The trace in which the message was written, by its traceparent."""
        given = {name.lower(): value for name, value in self.header_pairs.items()}
        parent = given.get(TRACEPARENT)
        return trace_id_of(parent) if isinstance(parent, str) else None

    @property
    def landed(self) -> dict[str, Any] | None:
        """Topic, partition and offset of the acknowledged record; None before there is one."""
        if self.sent_partition < 0:
            return None
        return {
            "topic": self.sent_topic or self.destination,
            "partition": self.sent_partition,
            "offset": self.sent_offset if self.sent_offset >= 0 else None,
        }


def list_messages(
    conn: psycopg.Connection[Any],
    schema: str = "public",
    *,
    statuses: Collection[Status] = (),
    destinations: Collection[str] = (),
    event_types: Collection[str] = (),
    limit: int = 50,
    before: int | None = None,
    after: int | None = None,
    oldest_first: bool = False,
) -> list[ListedMessage]:
    """List messages by id, newest first, that match every given filter.

    `before` and `after` are ids, both left out: continue with the last one listed. PENDING,
    PROCESSING and FAILED rows are found by way of the side tables; other lists walk the primary
    key until enough rows match. Raises psycopg's errors.
    """
    parameters = {
        "statuses": [str(status) for status in statuses] or None,
        "destinations": list(destinations) or None,
        "event_types": list(event_types) or None,
        "before": MAX_ID if before is None else before,
        "after": -MAX_ID if after is None else after,
        "row_limit": limit,
        "direction": 1 if oldest_first else -1,
    }
    name = "list_oldest" if oldest_first else "list_newest"
    if statuses and _OPEN.issuperset(statuses):
        name = "list_open"
    with conn.cursor(row_factory=class_row(ListedMessage)) as cursor:
        return cursor.execute(load(name, schema), parameters).fetchall()


def find_message(
    conn: psycopg.Connection[Any],
    reference: str,
    schema: str = "public",
    *,
    by_key: bool = False,
    payload_limit: int | None = None,
) -> tuple[StoredMessage, list[AuditEntry]]:
    """Read one message and its audit entries, in one snapshot.

    `reference` is an outbox_id or, where no row has that id or with `by_key`, a message key.
    `payload_limit` cuts the payload (characters of JSON, bytes otherwise). Raises OperationError
    where there is no such row, and psycopg's errors.
    """
    with one_snapshot(conn):
        message: StoredMessage | None = None
        if not by_key and reference.isdecimal() and int(reference) <= MAX_ID:
            message = _read(conn, schema, int(reference), payload_limit)
        if message is None and "\0" not in reference:
            with conn.cursor(row_factory=tuple_row) as cursor:
                found = cursor.execute(
                    load("find_key", schema), {"message_key": reference}
                ).fetchone()
            message = _read(conn, schema, found[0], payload_limit) if found else None
        if message is None:
            what = "message key" if by_key else "outbox_id or message key"
            raise OperationError(
                f"no row with {what} {reference!r} in schema {schema!r}; "
                "`outbox-bridge list` shows what is there"
            )
        with conn.cursor(row_factory=class_row(AuditEntry)) as audit:
            parameters = {"outbox_id": message.outbox_id}
            return message, audit.execute(load("list_audit", schema), parameters).fetchall()


def _read(
    conn: psycopg.Connection[Any], schema: str, outbox_id: int, payload_limit: int | None
) -> StoredMessage | None:
    with conn.cursor(row_factory=class_row(StoredMessage)) as cursor:
        parameters = {"outbox_id": outbox_id, "payload_limit": payload_limit}
        return cursor.execute(load("show_row", schema), parameters).fetchone()
