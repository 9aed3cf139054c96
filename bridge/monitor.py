"""Backlog snapshot: what is unsent, failed and sent, who is sending, and what holds it back.

The one source of these figures for metrics, command line and console.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003 - a field's type, read by tools at run time
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from psycopg.rows import class_row, tuple_row

from bridge.database.reading import one_snapshot
from bridge.database.statements import load
from bridge.database.template import advisory_class
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
    """What a relay's registration, heartbeat and session lock say together."""

    LIVING = "living"
    STOPPING = "stopping"
    """Alive, claims no more and is about to leave."""
    FROZEN = "frozen"
    """Its session stands, its heartbeat is older than its lease: claims are taken back."""
    DEAD = "dead"
    """Its session is gone: claims are taken back at once."""


@dataclass(frozen=True, slots=True)
class RelayView:
    """One registered relay; times by the database's clock."""

    relay_id: int
    relay_name: str
    host: str
    pid: int
    version: str
    stopping: bool
    started_at: datetime
    heartbeat_at: datetime
    silent_seconds: float
    lease_seconds: int
    has_session: bool | None
    claims: int

    @property
    def state(self) -> RelayState:
        """Whether it lives; on a standby, which sees no locks, by the heartbeat alone."""
        if self.has_session is False:
            return RelayState.DEAD
        if self.silent_seconds > self.lease_seconds:
            return RelayState.FROZEN if self.has_session else RelayState.DEAD
        return RelayState.STOPPING if self.stopping else RelayState.LIVING


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
    REPEATABLE READ transaction, which is what makes the counts exact: SENT and CANCELLED are the
    sum of the counters' increments, FAILED the rows of the failed list, PENDING and PROCESSING the
    rows that queue and claims lead to; the triggers and the relay keep each of these in the very
    transaction that changes the row. Raises psycopg's errors.
    """
    destinations: dict[str, DestinationBacklog] = {}

    def of(destination: str) -> DestinationBacklog:
        return destinations.setdefault(destination, DestinationBacklog())

    with one_snapshot(conn), conn.cursor(row_factory=tuple_row) as cursor:
        taken_at = cursor.execute("select pg_catalog.statement_timestamp()").fetchall()[0][0]
        for name, pending, processing, due, oldest in cursor.execute(load("count_unsent", schema)):
            one = of(name)
            one.counts[Status.PENDING] = pending
            one.counts[Status.PROCESSING] = processing
            one.due, one.later = due, pending - due
            one.oldest_unsent_seconds = oldest
        for name, status, rows in cursor.execute(load("count_settled", schema)):
            of(name).counts[Status(status)] = rows
        failures = [FailureGroup(*row) for row in cursor.execute(load("count_failed", schema))]
        for group in failures:
            of(group.destination).counts[Status.FAILED] += group.count
        registered = relays(conn, schema)
        switches = list_switches(conn, schema)
    return Backlog(taken_at, dict(sorted(destinations.items())), failures, registered, switches)


def relays(conn: psycopg.Connection[Any], schema: str = "public") -> list[RelayView]:
    """List the registered relays, oldest first. Raises psycopg's errors."""
    with conn.cursor(row_factory=class_row(RelayView)) as cursor:
        parameters = {"relay_class": advisory_class("relay", schema)}
        return cursor.execute(load("list_relays", schema), parameters).fetchall()
