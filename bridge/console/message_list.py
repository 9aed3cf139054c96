"""Reads one page of messages, by the cheapest way that its filter allows, and counts the rest.

The way depends on the filter: a message key by its index; PENDING, PROCESSING and FAILED by the
side tables; an event type by its index; everything else by the primary key, newest first. What no
index serves is looked for within a window of rows, and the page says so.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from psycopg.rows import dict_row

from bridge.console.filters import Cursor
from bridge.database.statements import load
from bridge.inspection import MAX_ID, ListedMessage
from bridge.lifecycle import Status

if TYPE_CHECKING:
    import psycopg

    from bridge.console.filters import MessageFilter

PAGE_ROWS = 50
COUNT_LIMIT = 10_000
"""Counts are exact up to here; it is also the window in which rows are looked for."""
QUEUE_LIMIT = 50_000
"""Waiting rows up to which the queue is read as a whole."""

_OPEN = frozenset({Status.PENDING, Status.PROCESSING, Status.FAILED})
_LONGEST_TRANSACTION = timedelta(minutes=15)
"""created_at is the start of a row's transaction, the id comes later: a search goes on a bit."""
_FIRST = datetime(1, 1, 1, tzinfo=UTC)
_LAST = datetime(9999, 12, 31, tzinfo=UTC)
_COLUMNS = tuple(one.name for one in fields(ListedMessage))


@dataclass(frozen=True, slots=True)
class Total:
    """How many messages match: exactly, more than `count`, or so many among those looked at."""

    count: int
    is_more: bool = False
    looked_at: int | None = None


@dataclass(frozen=True, slots=True)
class MessagePage:
    """`older` is where the next page begins, None at the end; `ran_out`: the window ended there."""

    rows: list[ListedMessage]
    total: Total
    older: Cursor | None
    ran_out: bool


def read_messages(conn: psycopg.Connection[Any], schema: str, wanted: MessageFilter) -> MessagePage:
    """Read the page. Raises psycopg's errors."""
    return _Reader(conn, schema, wanted).page()


class _Reader:
    def __init__(self, conn: psycopg.Connection[Any], schema: str, wanted: MessageFilter) -> None:
        self._conn = conn
        self._schema = schema
        self._wanted = wanted
        self._name = self._way()
        self._parameters = self._filters()

    def page(self) -> MessagePage:
        before = self._wanted.before
        window = COUNT_LIMIT if self._is_searched else PAGE_ROWS + 1
        looked, matched, lowest, rows = self._read(before, window, PAGE_ROWS + 1)
        older: Cursor | None = None
        ran_out = False
        if len(rows) > PAGE_ROWS:
            rows = rows[:PAGE_ROWS]
            last = rows[-1]
            older = Cursor(last.outbox_id, last.created_at if self._by_type else None)
        elif looked >= window and lowest is not None:
            older, ran_out = lowest, True
        if not (before is None and self._is_searched):
            looked, matched, _, _ = self._read(None, COUNT_LIMIT + 1, 0)
        return MessagePage(rows, self._total(looked, matched), older, ran_out)

    def _total(self, looked: int, matched: int) -> Total:
        if looked < COUNT_LIMIT:
            return Total(matched)
        if self._is_searched:
            return Total(matched, looked_at=COUNT_LIMIT)
        return Total(matched) if looked == COUNT_LIMIT else Total(COUNT_LIMIT, is_more=True)

    @property
    def _by_type(self) -> bool:
        return self._name == "browse_type"

    @property
    def _is_searched(self) -> bool:
        """Tell whether some filter is not served by what the list is read by."""
        w = self._wanted
        rest: list[object] = [w.ordering_key, w.like_key, w.trace_id]
        if self._name == "browse_open":
            rest += [w.created_from, w.created_to]
            only_failed = set(w.statuses) == {Status.FAILED}
            rest += [] if only_failed else [w.event_type, w.error_code]
            rest += [w.destination if Status.PROCESSING in w.statuses else None]
        elif self._by_type:
            rest += [w.statuses or None, w.destination, w.error_code]
        else:
            rest += [w.statuses or None, w.destination, w.error_code, w.event_type]
            rest += [w.created_from, w.created_to]
        return any(one is not None for one in rest)

    def _way(self) -> str:
        wanted = self._wanted
        if wanted.is_exact_key:
            return "browse_key"
        if wanted.statuses and _OPEN.issuperset(wanted.statuses):
            if Status.PENDING not in wanted.statuses or self._queue_is_short():
                return "browse_open"
            return "browse_newest"
        return "browse_type" if wanted.event_type else "browse_newest"

    def _queue_is_short(self) -> bool:
        with self._conn.cursor() as cursor:
            parameters = {"row_limit": QUEUE_LIMIT + 1}
            row = cursor.execute(load("probe_queue", self._schema), parameters).fetchone()
        return row is not None and row[0] <= QUEUE_LIMIT

    def _filters(self) -> dict[str, Any]:
        wanted = self._wanted
        floor, ceiling = 0, MAX_ID
        if self._name == "browse_newest":
            if wanted.created_from is not None:
                floor = self._first_id_at(wanted.created_from)
            if wanted.created_to is not None:
                ceiling = self._first_id_at(wanted.created_to + _LONGEST_TRANSACTION)
        created_from, created_to = wanted.created_from, wanted.created_to
        if self._by_type:
            created_from, created_to = created_from or _FIRST, created_to or _LAST
        return {
            "statuses": [str(status) for status in wanted.statuses] or None,
            "destination": wanted.destination,
            "event_type": wanted.event_type,
            "message_key": wanted.key,
            "key_pattern": wanted.like_key,
            "ordering_key": wanted.ordering_key,
            "error_code": wanted.error_code,
            "trace_pattern": f"%-{wanted.trace_id}-%" if wanted.trace_id else None,
            "created_from": created_from,
            "created_to": created_to,
            "floor": floor,
            "ceiling": ceiling,
        }

    def _read(
        self, before: Cursor | None, window: int, limit: int
    ) -> tuple[int, int, Cursor | None, list[ListedMessage]]:
        ceiling = self._parameters["ceiling"]
        parameters = {
            **self._parameters,
            "before": min(before.outbox_id if before else MAX_ID, ceiling),
            "before_time": (before.created_at if before else None) or _LAST,
            "window_rows": window,
            "row_limit": limit,
        }
        with self._conn.cursor(row_factory=dict_row) as cursor:
            found = cursor.execute(load(self._name, self._schema), parameters).fetchall()
        if not found:
            return 0, 0, None, []
        first = found[0]
        rows = [
            ListedMessage(**{name: row[name] for name in _COLUMNS})
            for row in found
            if row["outbox_id"] is not None
        ]
        lowest = Cursor(first["lowest"], first["earliest"]) if first["lowest"] is not None else None
        return first["looked"], first["matched"], lowest, rows

    def _first_id_at(self, moment: datetime) -> int:
        """Find about the first id created at or after a moment, by halving the range of ids."""
        with self._conn.cursor() as cursor:
            ends = cursor.execute(load("find_id_range", self._schema), {"from_id": 0}).fetchone()
            if ends is None or ends[0] is None:
                return 0
            low, high = ends[0], ends[1] + 1
            probe = load("probe_created", self._schema)
            while low < high:
                middle = (low + high) // 2
                row = cursor.execute(probe, {"from_id": middle}).fetchone()
                if row is None or row[1] >= moment:
                    high = middle
                else:
                    low = row[0] + 1
        return int(low)
