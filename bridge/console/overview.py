"""What the overview shows: the exact backlog where it is short, a sketch of it where it is long."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from psycopg.rows import tuple_row

from bridge.database.reading import one_snapshot
from bridge.database.statements import load
from bridge.lifecycle import Status
from bridge.monitor import (
    Backlog,
    DestinationBacklog,
    FailureGroup,
    Minute,
    RelayView,
    relays,
    snapshot,
    throughput,
)
from bridge.switches import ALL, SwitchView, list_switches

if TYPE_CHECKING:
    import psycopg

EXACT_LIMIT = 10_000
"""Waiting rows up to which all is counted exactly; beyond it `10,000+` for a destination."""
TOTAL_LIMIT = 500_000


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything about one moment; with `is_sketch` waiting rows are counted up to limits.

    `waiting` counts PENDING rows over all destinations (up to TOTAL_LIMIT). The last of `minutes`
    is not over yet.
    """

    backlog: Backlog
    waiting: int
    is_sketch: bool
    held_rows: int
    minutes: list[Minute]

    def switches_of(self, destination: str) -> list[SwitchView]:
        """List the switches of one destination, those for all apart."""
        return [one for one in self.backlog.switches if one.destination == destination]

    @property
    def switches_of_all(self) -> list[SwitchView]:
        """List the switches for all destinations."""
        return self.switches_of(ALL)


def read_overview(conn: psycopg.Connection[Any], schema: str) -> Overview:
    """Read it. `conn` has no transaction open. Raises psycopg's errors."""
    with conn.cursor(row_factory=tuple_row) as cursor:

        def value(name: str, **parameters: Any) -> int:
            return int(cursor.execute(load(name, schema), parameters).fetchall()[0][0])

        waiting = value("probe_queue", row_limit=TOTAL_LIMIT + 1)
        is_sketch = waiting > EXACT_LIMIT
        backlog = _sketch(conn, schema) if is_sketch else snapshot(conn, schema)
        if not is_sketch:
            waiting = backlog.counts[Status.PENDING]
        return Overview(
            backlog=replace(backlog, destinations=_with_switched(backlog)),
            waiting=waiting,
            is_sketch=is_sketch,
            held_rows=value("probe_holds", row_limit=EXACT_LIMIT + 1),
            minutes=throughput(conn, schema),
        )


def _sketch(conn: psycopg.Connection[Any], schema: str) -> Backlog:
    destinations: dict[str, DestinationBacklog] = {}

    def of(destination: str) -> DestinationBacklog:
        return destinations.setdefault(destination, DestinationBacklog())

    with one_snapshot(conn), conn.cursor(row_factory=tuple_row) as cursor:
        now = cursor.execute("select pg_catalog.statement_timestamp()").fetchall()[0][0]
        limits = {"row_limit": EXACT_LIMIT + 1}
        for name, waiting, due_since in cursor.execute(load("sketch_unsent", schema), limits):
            of(name).counts[Status.PENDING] = waiting
            if due_since is not None:
                of(name).oldest_unsent_seconds = max(0.0, (now - due_since).total_seconds())
        for name, rows in cursor.execute(load("count_in_flight", schema)):
            of(name).counts[Status.PROCESSING] = rows
        for name, status, rows in cursor.execute(load("sum_settled", schema)):
            of(name).counts[Status(status)] = rows
        failures = [FailureGroup(*row) for row in cursor.execute(load("count_failed", schema))]
        for group in failures:
            of(group.destination).counts[Status.FAILED] += group.count
        living: list[RelayView] = relays(conn, schema)
        switches = list_switches(conn, schema)
    return Backlog(now, dict(sorted(destinations.items())), failures, living, switches)


def _with_switched(backlog: Backlog) -> dict[str, DestinationBacklog]:
    """Add destinations that have switches and no rows."""
    named = {one.destination: DestinationBacklog() for one in backlog.switches}
    named.pop(ALL, None)
    return dict(sorted({**named, **backlog.destinations}.items()))
