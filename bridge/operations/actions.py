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
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from bridge.errors import InvalidOperationError
from bridge.operations.bulk import BATCH_ROWS, Order, run
from bridge.operations.content import edit_options
from bridge.operations.shapes import Action, Actor, Edit, Outcome, Selection

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    import psycopg

REPLAY_ROWS_PER_SECOND = 100.0


class Terms(TypedDict):
    """What every action takes beside its selection, as said above."""

    reason: str
    actor: Actor
    schema: NotRequired[str]
    limit: NotRequired[int | None]
    batch_rows: NotRequired[int]
    on_batch: NotRequired[Callable[[Outcome], None]]


def retry(
    conn: psycopg.Connection[Any],
    selection: Selection,
    *,
    keep_retry_count: bool = False,
    **terms: Unpack[Terms],
) -> Outcome:
    """Let FAILED rows try again at once: the same row, the same key, all attempts anew.

    `keep_retry_count` keeps the count of charged attempts: one more charged failure may end it.
    """
    return _run(conn, Action.RETRY, selection, {"keep_retry_count": keep_retry_count}, **terms)


def cancel(
    conn: psycopg.Connection[Any],
    selection: Selection,
    **terms: Unpack[Terms],
) -> Outcome:
    """Withdraw PENDING or FAILED rows for good.

    A record that was handed to Kafka cannot be called back: see `Outcome.maybe_sent`.
    """
    return _run(conn, Action.CANCEL, selection, {}, **terms)


def send_now(
    conn: psycopg.Connection[Any],
    selection: Selection,
    **terms: Unpack[Terms],
) -> Outcome:
    """Make PENDING rows due that wait for a later time: a backoff, or their schedule."""
    return _run(conn, Action.SEND_NOW, selection, {}, **terms)


def release(
    conn: psycopg.Connection[Any],
    selection: Selection,
    *,
    stuck_minutes: int | None = None,
    **terms: Unpack[Terms],
) -> Outcome:
    """Take PROCESSING rows back from a relay that is dead; nothing is charged.

    With `stuck_minutes` the claim's age decides instead: from relays that live as well, and never
    within their lease. As after a rescue, a late acknowledgement still counts until somebody
    claims, edits or cancels the row.
    """
    if stuck_minutes is not None and stuck_minutes < 1:
        raise InvalidOperationError(f"stuck_minutes is {stuck_minutes}; give 1 or more")
    return _run(
        conn,
        Action.RELEASE,
        selection,
        {} if stuck_minutes is None else {"stuck_minutes": stuck_minutes},
        **terms,
    )


def replay(
    conn: psycopg.Connection[Any],
    selection: Selection,
    *,
    replay_id: str | None = None,
    rows_per_second: float = REPLAY_ROWS_PER_SECOND,
    **terms: Unpack[Terms],
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
    # Few rows a second: small batches, so that a cut leaves little behind that is yet to go.
    most = max(1, min(terms.get("batch_rows", BATCH_ROWS), int(rows_per_second * 5)))
    options = {"replay_id": _checked_replay_id(replay_id)}
    narrowed: Terms = {**terms, "batch_rows": most}
    return _run(
        conn, Action.REPLAY, selection, options, rows_per_second=rows_per_second, **narrowed
    )


def skip(
    conn: psycopg.Connection[Any],
    selection: Selection,
    **terms: Unpack[Terms],
) -> Outcome:
    """Let the followers of rows that hold their ordering key go on without them.

    The rows stay what they are: FAILED, or waiting for their next attempt.
    """
    return _run(conn, Action.SKIP, selection, {}, **terms)


def edit(
    conn: psycopg.Connection[Any],
    selection: Selection,
    change: Edit,
    *,
    keep_payload: bool = False,
    max_payload_bytes: int | None = None,
    **terms: Unpack[Terms],
) -> Outcome:
    """Change destination, headers or payload of PENDING or FAILED rows; the status stays.

    The audit keeps a SHA-256 of the old and the new payload, with `keep_payload` the old one in
    full. A payload is changed by id only.
    """
    options = edit_options(selection, change, max_payload_bytes)
    return _run(conn, Action.EDIT, selection, {**options, "keep_payload": keep_payload}, **terms)


def _checked_replay_id(text: str | None) -> str:
    try:
        return str(uuid.uuid4() if text is None else uuid.UUID(text))
    except ValueError as error:
        raise InvalidOperationError(f"replay_id {text!r} is no UUID") from error


def _run(
    conn: psycopg.Connection[Any],
    action: Action,
    selection: Selection,
    options: dict[str, Any],
    *,
    reason: str,
    actor: Actor,
    schema: str = "public",
    limit: int | None = None,
    batch_rows: int = BATCH_ROWS,
    on_batch: Callable[[Outcome], None] = lambda _so_far: None,
    rows_per_second: float | None = None,
) -> Outcome:
    order = Order(
        action=action,
        selection=selection,
        reason=reason,
        actor=actor,
        schema=schema,
        options=options,
        limit=limit,
        batch_rows=batch_rows,
        rows_per_second=rows_per_second,
    )
    return run(conn, order, on_batch)
