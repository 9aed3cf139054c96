"""Backlog snapshot: what is unsent, failed and sent, who is sending, and what holds it back.

The one source of these figures for metrics, command line and console.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003 - a field's type, read by tools at run time
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from psycopg.rows import class_row, dict_row, tuple_row

from bridge.database.reading import one_snapshot
from bridge.database.statements import load
from bridge.lifecycle import Status
from bridge.switches import SwitchView, list_switches

if TYPE_CHECKING:
    import psycopg


def _no_rows() -> dict[Status, int]:
    return dict.fromkeys(Status, 0)


@dataclass(slots=True)
class DestinationBacklog:
    """Rows of one destination: `due` and `later` split PENDING by next_run_at.

    `oldest_unsent_seconds`: since when the longest waiting row could have gone out; None where
    nothing waits. Rows scheduled for later do not count until they are due.
    """

    counts: dict[Status, int] = field(default_factory=_no_rows)
    due: int = 0
    later: int = 0
    oldest_unsent_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """FAILED rows of one destination that share an error code."""

    destination: str
    error_code: str | None
    count: int
    first_at: datetime
    latest_at: datetime


class RelayState(StrEnum):
    """What a relay's registration, heartbeat and session lock say together (view outbox_relays)."""

    LIVING = "living"
    STOPPING = "stopping"
    """Alive, claims no more and is about to leave."""
    FROZEN = "frozen"
    """Its session stands, its heartbeat is older than its lease: claims are taken back."""
    DEAD = "dead"
    """Its session is gone: claims are taken back at once."""


@dataclass(frozen=True, slots=True)
class RelayView:
    """One registered relay; times by the database's clock.

    `has_session` is None where nobody can tell: behind a transaction pooler, on a standby.
    `failing` are the destinations whose circuit breaker it has open, with the reason of each.
    """

    relay_id: int
    relay_name: str
    host: str
    pid: int
    version: str
    state: RelayState
    started_at: datetime
    heartbeat_at: datetime
    silent_seconds: float
    lease_seconds: int
    has_session: bool | None
    claims: int
    failing: dict[str, str] = field(default_factory=dict)

    @property
    def is_there(self) -> bool:
        """Tell whether its heartbeat counts: what it tells of is true now."""
        return self.state in {RelayState.LIVING, RelayState.STOPPING}


@dataclass(frozen=True, slots=True)
class Minute:
    """What became of rows within a minute; FAILED ones count while they are FAILED."""

    minute: datetime
    sent: int
    failed: int
    cancelled: int


@dataclass(frozen=True, slots=True)
class Backlog:
    """Everything about one moment. Counts are exact, whatever happens meanwhile."""

    taken_at: datetime
    destinations: dict[str, DestinationBacklog]
    failures: list[FailureGroup]
    relays: list[RelayView]
    switches: list[SwitchView] = field(default_factory=list)

    @property
    def counts(self) -> dict[Status, int]:
        """Rows by status, over all destinations."""
        return {
            status: sum(one.counts[status] for one in self.destinations.values())
            for status in Status
        }

    @property
    def due(self) -> int:
        """PENDING rows that may go out now."""
        return sum(one.due for one in self.destinations.values())

    @property
    def later(self) -> int:
        """PENDING rows whose next_run_at is still to come."""
        return sum(one.later for one in self.destinations.values())

    @property
    def oldest_unsent_seconds(self) -> float | None:
        """Since when the longest waiting row could have gone out; None where nothing waits."""
        ages = [one.oldest_unsent_seconds for one in self.destinations.values()]
        return max((age for age in ages if age is not None), default=None)


def snapshot(conn: psycopg.Connection[Any], schema: str = "public") -> Backlog:
    """Take the backlog of one moment.

    `conn` must have no transaction open; it is left without one. The statements run in one
    REPEATABLE READ transaction and read the monitoring views, whose counts are exact: the triggers
    and the relay keep what they sum up in the very transaction that changes the row. Raises
    psycopg's errors.
    """
    destinations: dict[str, DestinationBacklog] = {}
    with one_snapshot(conn), conn.cursor(row_factory=tuple_row) as cursor:
        taken_at = cursor.execute("select pg_catalog.statement_timestamp()").fetchall()[0][0]
        for name, *counts, due, later, oldest in cursor.execute(load("read_backlog", schema)):
            by_status = dict(zip(Status, counts, strict=True))
            destinations[name] = DestinationBacklog(by_status, due, later, oldest)
        failures = [FailureGroup(*row) for row in cursor.execute(load("count_failed", schema))]
        registered = relays(conn, schema)
        switches = list_switches(conn, schema)
    return Backlog(taken_at, destinations, failures, registered, switches)


def relays(conn: psycopg.Connection[Any], schema: str = "public") -> list[RelayView]:
    """List the registered relays, oldest first. Raises psycopg's errors."""
    with conn.cursor(row_factory=dict_row) as cursor:
        return [
            RelayView(**{**row, "state": RelayState(row["state"])})
            for row in cursor.execute(load("list_relays", schema))
        ]


def throughput(conn: psycopg.Connection[Any], schema: str = "public") -> list[Minute]:
    """List the last 60 minutes, oldest first; the last one is not over. Raises psycopg's errors."""
    with conn.cursor(row_factory=class_row(Minute)) as cursor:
        return cursor.execute(load("list_throughput", schema)).fetchall()


def throughput_by_destination(
    conn: psycopg.Connection[Any], schema: str = "public"
) -> dict[tuple[datetime, str], int]:
    """Return the rows that became SENT, by minute and destination, of the last 60 minutes.

    Raises psycopg's errors.
    """
    with conn.cursor(row_factory=tuple_row) as cursor:
        rows = cursor.execute(load("list_destination_throughput", schema))
        return {(minute, destination): sent for minute, destination, sent in rows}
