"""Held ordering keys: which, by which row, since and until when, and how many rows wait."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003 - a field's type, read by tools at run time
from typing import TYPE_CHECKING, Any

from psycopg.rows import class_row, tuple_row

from bridge.database.statements import load
from bridge.lifecycle import Status

if TYPE_CHECKING:
    from collections.abc import Collection

    import psycopg

UNTIL_DECIDED = "until it is retried, cancelled or skipped"


@dataclass(frozen=True, slots=True)
class HeldKey:
    """One row that holds up its key; a key may be held by several, the lowest id goes first.

    `waiting` counts the parked rows behind it; rows that no claim has met yet come on top. The
    row's own fields are None where it was deleted a moment ago. `next_run_at` is text: it may be
    infinite.
    """

    destination: str
    ordering_key: str
    outbox_id: int
    message_key: str | None
    status: str | None
    error_code: str | None
    error_message: str | None
    held_at: datetime
    released_at: datetime | None
    next_run_at: str | None
    is_alone: bool
    waiting: int

    @property
    def until(self) -> str:
        """What the key waits for, in words; a time where the row is tried again by itself."""
        if self.released_at is not None or self.status is None:
            return "its rows are coming back"
        if self.status == Status.FAILED:
            return UNTIL_DECIDED
        if self.status == Status.PROCESSING:
            return "the row is being sent"
        return self.next_run_at or UNTIL_DECIDED


def list_held_keys(
    conn: psycopg.Connection[Any],
    schema: str = "public",
    *,
    destinations: Collection[str] = (),
    limit: int | None = None,
) -> list[HeldKey]:
    """List held keys, the longest held first, at most `limit`. Raises psycopg's errors."""
    parameters = {"destinations": list(destinations) or None, "row_limit": limit}
    with conn.cursor(row_factory=class_row(HeldKey)) as cursor:
        return cursor.execute(load("list_holds", schema), parameters).fetchall()


def count_held_keys(conn: psycopg.Connection[Any], schema: str = "public") -> int:
    """Count the rows that hold up their key. Raises psycopg's errors."""
    with conn.cursor(row_factory=tuple_row) as cursor:
        (row,) = cursor.execute(load("count_holds", schema)).fetchall()
        return int(row[0])
