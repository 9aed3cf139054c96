"""Runs one action over its rows: in batches, each a transaction, so that it can stop anywhere."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import orjson
import psycopg
from psycopg.rows import tuple_row

from bridge.database.arrays import array
from bridge.database.statements import load
from bridge.errors import InvalidOperationError
from bridge.operations.shapes import (
    KEPT_ROWS,
    MAX_NAME,
    Action,
    Actor,
    ChangedRow,
    Outcome,
    Refusal,
    Selection,
)
from bridge.operations.targets import Targets
from bridge.operations.versions import needs_schema
from bridge.reason import checked_reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BATCH_ROWS = 500
_BUSY = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)
_LOCK_TIMEOUT = "2s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One action as it was asked for."""

    action: Action
    selection: Selection
    reason: str
    actor: Actor
    schema: str
    options: dict[str, Any]
    limit: int | None = None
    batch_rows: int = BATCH_ROWS
    rows_per_second: float | None = None
    """Rows are due one after the other at this rate, and batches follow each other no faster."""


def run(
    conn: psycopg.Connection[Any],
    order: Order,
    on_batch: Callable[[Outcome], None] = lambda _so_far: None,
) -> Outcome:
    """Do the action; `on_batch` hears of the outcome so far after each batch is committed.

    Raises InvalidOperationError for what cannot be done at all, SchemaError where the schema is
    older than actions, and psycopg's errors.
    """
    order = _checked(order)
    outcome = Outcome(
        order.action,
        request_id=order.actor.request_id,
        replay_id=order.options.get("replay_id"),
    )
    with needs_schema(order.schema, order.action.command):
        for ids in _batches(conn, order):
            started = time.monotonic()
            outcome = _added(outcome, _act(conn, order, ids), len(ids))
            on_batch(outcome)
            _rest(order, len(ids), started)
    return outcome


def _checked(order: Order) -> Order:
    order.selection.check(order.action)
    name = order.actor.name.strip()
    if not name or "\0" in name:
        raise InvalidOperationError("the actor has no name; say who acts")
    request_id = order.actor.request_id or uuid.uuid4().hex
    actor = Actor(name[:MAX_NAME], order.actor.source, request_id[:MAX_NAME])
    return replace(order, reason=checked_reason(order.reason), actor=actor)


def _batches(conn: psycopg.Connection[Any], order: Order) -> Iterator[list[int]]:
    """Yield ids to act on, ascending, never one twice, none that came after the start."""
    found = Targets(conn, order.schema, order.action, order.selection, order.options)
    left = order.limit
    for page in found.pages():
        chosen = page if left is None else page[:left]
        for start in range(0, len(chosen), order.batch_rows):
            yield chosen[start : start + order.batch_rows]
        if left is not None:
            left -= len(chosen)
            if left <= 0:
                return


def _act(conn: psycopg.Connection[Any], order: Order, ids: list[int]) -> list[tuple[Any, ...]]:
    """Act on one batch in one transaction; rows that stay locked are left out and told."""
    try:
        return _try(conn, order, ids, skip_locked=False)
    except _BUSY:
        return _try(conn, order, ids, skip_locked=True)


def _try(
    conn: psycopg.Connection[Any], order: Order, ids: list[int], *, skip_locked: bool
) -> list[tuple[Any, ...]]:
    with conn.transaction(), conn.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            load("name_operator", order.schema),
            {
                "actor": order.actor.name,
                "source": order.actor.source,
                "request_id": order.actor.request_id,
                "lock_timeout": _LOCK_TIMEOUT,
            },
            prepare=False,
        )
        return cursor.execute(
            load("act_rows", order.schema),
            {
                "action": str(order.action),
                "outbox_ids": array(ids),
                "reason": order.reason,
                "options": orjson.dumps(_options(order)).decode(),
                "skip_locked": skip_locked,
            },
            prepare=False,  # a pooler between may not know what another session prepared
        ).fetchall()


def _options(order: Order) -> dict[str, Any]:
    if order.rows_per_second is None:
        return order.options
    return {**order.options, "spacing_seconds": 1 / order.rows_per_second}


def _added(outcome: Outcome, rows: list[tuple[Any, ...]], matched: int) -> Outcome:
    """Count one batch; `rows` are those of `act_rows.sql`."""
    changed = [ChangedRow(*row[:4]) for row in rows if row[4] is None]
    refused = [Refusal(row[0], row[4]) for row in rows if row[4] is not None]
    untouched = sum(1 for row in changed if row.claim_count == 0)
    return replace(
        outcome,
        matched=outcome.matched + matched,
        changed=outcome.changed + len(changed),
        never_sent=outcome.never_sent + untouched,
        maybe_sent=outcome.maybe_sent + len(changed) - untouched,
        refused_count=outcome.refused_count + len(refused),
        refused=(*outcome.refused, *refused)[:KEPT_ROWS],
        rows=(*outcome.rows, *changed)[:KEPT_ROWS],
    )


def _rest(order: Order, rows: int, started: float) -> None:
    """Wait until the batch's rows are due, so that no more than one batch is ahead of its time."""
    if order.rows_per_second is not None:
        time.sleep(max(0.0, rows / order.rows_per_second - (time.monotonic() - started)))
