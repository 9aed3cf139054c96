"""What an action would change, before it does."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import orjson
from psycopg.rows import tuple_row

from bridge.database.arrays import array
from bridge.database.statements import load
from bridge.inspection import MAX_ID
from bridge.operations.shapes import (
    PREVIEW_LIMIT,
    Action,
    Preview,
    Refusal,
    Selection,
    TargetRow,
)
from bridge.operations.targets import Targets
from bridge.operations.versions import needs_schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    import psycopg

_EXAMPLES = 10


def preview(
    conn: psycopg.Connection[Any],
    action: Action,
    selection: Selection,
    *,
    schema: str = "public",
    options: Mapping[str, Any] | None = None,
    examples: int = _EXAMPLES,
) -> Preview:
    """Count what an action would change and show some of it; changes and locks nothing.

    `options` are those of the action that decide which rows fit: `stuck_minutes`, `replay_id`, and
    what `edit_options` returns. Raises what the action raises.
    """
    selection.check(action)
    given = dict(options or {})
    with needs_schema(schema, action.command):
        if selection.is_by_id:
            rows, refused = _of_ids(conn, schema, action, selection, given)
            is_capped = False
        else:
            found = Targets(conn, schema, action, selection, given).rows(
                0, MAX_ID, PREVIEW_LIMIT + 1
            )
            rows, refused, is_capped = found[:PREVIEW_LIMIT], (), len(found) > PREVIEW_LIMIT
    untouched = sum(1 for row in rows if row.claim_count == 0)
    return Preview(
        action,
        matched=len(rows),
        is_capped=is_capped,
        never_sent=untouched,
        maybe_sent=len(rows) - untouched,
        by_destination=tuple(Counter(row.destination for row in rows).most_common()),
        examples=tuple(rows[:examples]),
        refused=refused,
    )


def _of_ids(
    conn: psycopg.Connection[Any],
    schema: str,
    action: Action,
    selection: Selection,
    options: dict[str, Any],
) -> tuple[list[TargetRow], tuple[Refusal, ...]]:
    """Tell rows that were named by id apart: those that fit, and those that do not, and why."""
    parameters = {
        "action": str(action),
        "outbox_ids": array(selection.ids),
        "options": orjson.dumps(options).decode(),
    }
    with conn.cursor(row_factory=tuple_row) as cursor:
        found = cursor.execute(load("explain_targets", schema), parameters).fetchall()
    return (
        [TargetRow(*row[:-1]) for row in found if row[-1] is None],
        tuple(Refusal(row[0], row[-1]) for row in found if row[-1] is not None),
    )
