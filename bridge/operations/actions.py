"""The actions: each checks its rows' state, and leaves one audit entry for each row it changes.

All take a selection, a reason and an actor and work alike: rows are changed in batches of
`batch_rows`, each a transaction of its own (or a part of the caller's, where one is open), so that
a run may be cut anywhere and started again. `on_batch` hears of the outcome so far. `limit` ends
the run after so many rows. The database does the work (`app_outbox_act`): SQL, command line and
console share one implementation.

Raises InvalidOperationError for an unusable argument, SchemaError where the schema is older than
actions, and psycopg's errors. Rows in the wrong state are no error here: `Outcome.refused` names
them.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from bridge.errors import InvalidOperationError
from bridge.operations.bulk import BATCH_ROWS, Order, run
from bridge.operations.content import edit_options
from bridge.operations.shapes import Action, Actor, Edit, Outcome, Selection

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

REPLAY_ROWS_PER_SECOND = 100.0
_NO_NEWS: Callable[[Outcome], None] = lambda _so_far: None  # noqa: E731 - a default, once


def retry(
    conn: psycopg.Connection[Any],
    selection: Selection,
    *,
    reason: str,
    actor: Actor,
    schema: str = "public",
    keep_retry_count: bool = False,
    limit: int | None = None,
    batch_rows: int = BATCH_ROWS,
    on_batch: Callable[[Outcome], None] = _NO_NEWS,
) -> Outcome:
    """Let FAILED rows try again at once: the same row, the same key, all attempts anew.

    `keep_retry_count` keeps the count of charged attempts: one more charged failure may end it.
    """
    order = Order(
        action=Action.RETRY,
        selection=selection,
        reason=reason,
        actor=actor,
        schema=schema,
        options={"keep_retry_count": keep_retry_count},
        limit=limit,
        batch_rows=batch_rows,
    )
    return run(conn, order, on_batch)


def cancel(
    conn: psycopg.Connection[Any],
    selection: Selection,
    *,
    reason: str,
    actor: Actor,
    schema: str = "public",
    limit: int | None = None,
    batch_rows: int = BATCH_ROWS,
    on_batch: Callable[[Outcome], None] = _NO_NEWS,
) -> Outcome:
    """Withdraw PENDING or FAILED rows for good.

    A record that was handed to Kafka cannot be called back: see `Outcome.maybe_sent`.
    """
    order = Order(
        action=Action.CANCEL,
        selection=selection,
        reason=reason,
        actor=actor,
        schema=schema,
        options={},
        limit=limit,
        batch_rows=batch_rows,
    )
    return run(conn, order, on_batch)


def send_now(
    conn: psycopg.Connection[Any],
    selection: Selection,
    *,
    reason: str,
    actor: Actor,
    schema: str = "public",
    limit: int | None = None,
    batch_rows: int = BATCH_ROWS,
    on_batch: Callable[[Outcome], None] = _NO_NEWS,
) -> Outcome:
    """Make PENDING rows due that wait for a later time: a backoff, or their schedule."""
    order = Order(
        action=Action.SEND_NOW,
        selection=selection,
        reason=reason,
        actor=actor,
        schema=schema,
        options={},
        limit=limit,
        batch_rows=batch_rows,
    )
    return run(conn, order, on_batch)


def release(
    conn: psycopg.Connection[Any],
    selection: Selection,
    *,
    reason: str,
    actor: Actor,
    schema: str = "public",
    stuck_minutes: int | None = None,
    limit: int | None = None,
    batch_rows: int = BATCH_ROWS,
    on_batch: Callable[[Outcome], None] = _NO_NEWS,
) -> Outcome:
    """Take PROCESSING rows back from a relay that is dead; nothing is charged.

    With `stuck_minutes` the claim's age decides instead: from relays that live as well, and never
    within their lease. As after a rescue, a late acknowledgement still counts until somebody
    claims, edits or cancels the row.
    """
    if stuck_minutes is not None and stuck_minutes < 1:
        raise InvalidOperationError(f"stuck_minutes is {stuck_minutes}; give 1 or more")
    order = Order(
        action=Action.RELEASE,
        selection=selection,
        reason=reason,
        actor=actor,
        schema=schema,
        options={} if stuck_minutes is None else {"stuck_minutes": stuck_minutes},
        limit=limit,
        batch_rows=batch_rows,
    )
    return run(conn, order, on_batch)


def replay(
    conn: psycopg.Connection[Any],
    selection: Selection,
    *,
    reason: str,
    actor: Actor,
    schema: str = "public",
    replay_id: str | None = None,
    rows_per_second: float = REPLAY_ROWS_PER_SECOND,
    limit: int | None = None,
    batch_rows: int = BATCH_ROWS,
    on_batch: Callable[[Outcome], None] = _NO_NEWS,
) -> Outcome:
    """Send SENT rows once more: the same key, with the header `outbox-replay-id`.

    Rows become due one after the other at `rows_per_second`, and the run takes as long. It is
    outside the order: a replayed record comes behind everything that was sent since. To go on
    after an interruption pass the same `replay_id` (see `Outcome.replay_id`): rows that carry it
    are left out.
    """
    if not 0 < rows_per_second <= 1_000_000:  # noqa: PLR2004 - said in the text
        raise InvalidOperationError(
            f"rows_per_second is {rows_per_second:g}; give more than 0 and at most 1000000"
        )
    order = Order(
        action=Action.REPLAY,
        selection=selection,
        reason=reason,
        actor=actor,
        schema=schema,
        options={"replay_id": _checked_replay_id(replay_id)},
        limit=limit,
        # Few rows a second: small batches, so that a cut leaves little behind that is yet to go.
        batch_rows=max(1, min(batch_rows, int(rows_per_second * 5))),
        rows_per_second=rows_per_second,
    )
    return run(conn, order, on_batch)


def skip(
    conn: psycopg.Connection[Any],
    selection: Selection,
    *,
    reason: str,
    actor: Actor,
    schema: str = "public",
    limit: int | None = None,
    batch_rows: int = BATCH_ROWS,
    on_batch: Callable[[Outcome], None] = _NO_NEWS,
) -> Outcome:
    """Let the followers of rows that hold their ordering key go on without them.

    The rows stay what they are: FAILED, or waiting for their next attempt.
    """
    order = Order(
        action=Action.SKIP,
        selection=selection,
        reason=reason,
        actor=actor,
        schema=schema,
        options={},
        limit=limit,
        batch_rows=batch_rows,
    )
    return run(conn, order, on_batch)


def edit(
    conn: psycopg.Connection[Any],
    selection: Selection,
    change: Edit,
    *,
    reason: str,
    actor: Actor,
    schema: str = "public",
    keep_payload: bool = False,
    max_payload_bytes: int | None = None,
    limit: int | None = None,
    batch_rows: int = BATCH_ROWS,
    on_batch: Callable[[Outcome], None] = _NO_NEWS,
) -> Outcome:
    """Change destination, headers or payload of PENDING or FAILED rows; the status stays.

    The audit keeps a SHA-256 of the old and the new payload, with `keep_payload` the old one in
    full. A payload is changed by id only.
    """
    options = edit_options(selection, change, max_payload_bytes)
    order = Order(
        action=Action.EDIT,
        selection=selection,
        reason=reason,
        actor=actor,
        schema=schema,
        options={**options, "keep_payload": keep_payload},
        limit=limit,
        batch_rows=batch_rows,
    )
    return run(conn, order, on_batch)


def _checked_replay_id(text: str | None) -> str:
    try:
        return str(uuid.uuid4() if text is None else uuid.UUID(text))
    except ValueError as error:
        raise InvalidOperationError(f"replay_id {text!r} is no UUID") from error
