"""Finds the rows that a selection means, by way of the side tables where there are any."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import orjson
from psycopg.rows import class_row, tuple_row

from bridge.database.statements import load
from bridge.operations.shapes import STARTS, Action, Selection, TargetRow

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

_PAGE_ROWS = 20_000


class Targets:
    """The rows of one action that fit a selection, by ascending id."""

    def __init__(
        self,
        conn: psycopg.Connection[Any],
        schema: str,
        action: Action,
        selection: Selection,
        options: dict[str, Any] | None = None,
    ) -> None:
        self._conn = conn
        self._schema = schema
        self._action = action
        self._selection = selection
        self._options = options or {}

    def pages(self) -> Iterator[list[int]]:
        """Yield ids in pages; by filter none that was enqueued after the first one was asked for.

        Ids that were given are yielded as they are, each once: the action says what is wrong with
        them.
        """
        if self._selection.is_by_id:
            yield sorted(set(self._selection.ids))
            return
        last = self._last_id()
        after = 0
        while page := [row.outbox_id for row in self.rows(after, last, _PAGE_ROWS)]:
            yield page
            after = page[-1]

    def rows(self, after: int, until: int, limit: int) -> list[TargetRow]:
        """Return rows that would be changed, ids above `after` and up to `until`."""
        name = "find_sent_targets" if self._action is Action.REPLAY else "find_targets"
        with self._conn.cursor(row_factory=class_row(TargetRow)) as cursor:
            return cursor.execute(
                load(name, self._schema),
                {**self._parameters(), "after": after, "until": until, "row_limit": limit},
            ).fetchall()

    def _last_id(self) -> int:
        with self._conn.cursor(row_factory=tuple_row) as cursor:
            row = cursor.execute(load("find_id_range", self._schema), {"from_id": 0}).fetchone()
        return row[1] if row is not None else 0

    def _parameters(self) -> dict[str, Any]:
        wanted = self._selection
        statuses = wanted.statuses or STARTS[self._action]
        return {
            "action": str(self._action),
            "statuses": [str(status) for status in statuses],
            "destination": wanted.destination,
            "event_type": wanted.event_type,
            "key_pattern": None if wanted.key_pattern is None else like(wanted.key_pattern),
            "ordering_key": wanted.ordering_key,
            "error_code": wanted.error_code,
            "created_from": wanted.created_from,
            "created_to": wanted.created_to,
            "trace_id": None if wanted.trace_id is None else wanted.trace_id.lower(),
            "replay_id": self._options.get("replay_id"),
            "options": orjson.dumps(self._options).decode(),
        }


def like(pattern: str) -> str:
    """Turn a shell-style pattern (`*`, `?`) into one for LIKE."""
    return re.sub(r"[%_\\]", r"\\\g<0>", pattern).replace("*", "%").replace("?", "_")
