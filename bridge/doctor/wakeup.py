"""Checks of the way between a relay and its database: wake-up by NOTIFY, and clocks."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

from psycopg import sql

from bridge.database.connection import connect
from bridge.doctor.finding import Outcome, ok, problem, unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bridge.doctor.database import Database

_TRIES = 5


def wake_up(database: Database) -> Iterator[Outcome]:
    """Whether a notification of a writer reaches a relay that listens."""
    settings = database.settings.database
    direct = settings.direct_url.get_secret_value() if settings.direct_url else None
    with database.transaction():
        place = database.row("read_place")
    if place.is_standby:
        yield unknown(
            "this server is a standby: nobody can listen here",
            "Let the database URL lead to the primary.",
        )
        return
    if place.queue_usage > database.limits.notification_queue:
        yield problem(
            f"the server's queue of notifications is {place.queue_usage:.0%} full: a session that "
            "listens does not fetch them, and at 100 % every commit with NOTIFY fails",
            "Look for a session that listens and is idle in transaction (pg_stat_activity).",
        )
    seconds = max(2, round(database.time_limit))
    with connect(
        direct or database.settings.database_url, stage="doctor", connect_timeout=seconds
    ) as listener:
        pid = listener.execute("select pg_catalog.pg_backend_pid()").fetchone()
        if pid is None or pid[0] != listener.info.backend_pid:
            # LISTEN would stay behind in a session that belongs to others.
            yield problem(
                "a connection pooler stands between: relays do not listen there, they poll; and if "
                "one dies, its claims move on after the lease instead of within seconds",
                "database.direct_url leads through a pooler, too; let it lead past it"
                if direct
                else "Set OUTBOX_BRIDGE_DATABASE_DIRECT_URL to a URL that leads past the pooler.",
            )
            return
        channel = f"outbox_doctor_{secrets.token_hex(8)}"
        listener.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))
        started = time.monotonic()
        # As writers do it: on the ordinary connection.
        database.conn.execute("select pg_catalog.pg_notify(%(channel)s, '')", {"channel": channel})
        heard = any(True for _ in listener.notifies(timeout=database.time_limit, stop_after=1))
        took = time.monotonic() - started
    if heard:
        yield ok(f"a notification came back after {took * 1000:.1f} ms")
    else:
        yield problem(
            f"no notification came within {database.time_limit:.0f} s, though LISTEN was accepted",
            "Let database.url and database.direct_url lead to the same server.",
        )


def clock(database: Database, now: Callable[[], float] = time.time) -> Iterator[Outcome]:
    """Whether this machine's clock agrees with the database's, by which everything is timed."""
    best: tuple[float, float] | None = None
    query = "select extract(epoch from pg_catalog.clock_timestamp())::float8"
    for _ in range(_TRIES):
        before = now()
        row = database.conn.execute(query).fetchone()
        after = now()
        if row is not None and (best is None or after - before < best[0]):
            best = after - before, row[0] - (before + after) / 2
    if best is None:
        yield unknown("the database did not tell its time", "Run it again.")
        return
    took, difference = best
    evidence = (
        f"this machine is {abs(difference):.3f} s {'behind' if difference > 0 else 'ahead of'} the "
        f"database (± {took / 2:.3f} s)"
    )
    if abs(difference) - took / 2 > database.limits.clock_seconds:
        yield problem(
            f"{evidence}; leases and schedules go by the database's clock, but logs, traces and "
            "the time of "
            "records go by this one",
            "Let both machines follow the same time service (chronyc tracking, timedatectl).",
        )
    else:
        yield ok(evidence)
