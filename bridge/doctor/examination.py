"""Runs the checks and gathers what they found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg

from bridge.database.reading import in_words, reading
from bridge.doctor import brokers, queue, schema, sessions, tables, topics, wakeup
from bridge.doctor.cluster import SentRow, Use, look_at_cluster
from bridge.doctor.database import Database
from bridge.doctor.finding import Finding, Outcome, Verdict, ok, problem, unknown
from bridge.doctor.limits import Limits
from bridge.errors import ConfigurationError, OutboxError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from bridge.doctor.cluster import Cluster
    from bridge.settings import Settings

TIMEOUT = 10.0
"""Seconds that each part (the database, a statement, Kafka) may take to answer."""

_OLDEST_SERVER = 140000
_SENT_ROWS = 100


def _server(database: Database) -> Iterator[Outcome]:
    """Whether the database answers, is of a supported version and takes writes."""
    info = database.conn.info
    version = info.parameter_status("server_version")
    with database.transaction():
        place = database.row("read_place")
    if info.server_version < _OLDEST_SERVER:
        yield problem(f"PostgreSQL {version}", "Upgrade the server to PostgreSQL 14 or newer.")
    elif place.is_standby:
        yield problem(
            f"PostgreSQL {version} at {info.host} is a standby, which is read-only: relays wait",
            "Let the database URL lead to the primary, or name all hosts in it.",
        )
    else:
        yield ok(f"PostgreSQL {version}, database {info.dbname}")


DATABASE: dict[str, Callable[[Database], Iterator[Outcome]]] = {
    "database": _server,
    "migrations": schema.migrations,
    "roles": schema.roles,
    "publications": schema.publications,
    "queue": queue.queue,
    "relays": queue.relays,
    "long-transactions": sessions.long_transactions,
    "replication-slots": sessions.replication_slots,
    "autovacuum": tables.autovacuum,
    "dead-rows": tables.dead_rows,
    "hot-updates": tables.hot_updates,
    "wake-up": wakeup.wake_up,
    "clock": wakeup.clock,
}

KAFKA: dict[str, Callable[[Cluster], Iterator[Outcome]]] = {
    "kafka": brokers.kafka,
    "kafka-version": brokers.kafka_version,
    "destinations": topics.destinations,
    "topics": topics.topics,
    "topic-rights": topics.topic_rights,
    "min-insync-replicas": topics.min_insync_replicas,
    "message-size": topics.message_size,
    "partitioner": brokers.partitioner,
}

CHECKS: dict[str, str] = {
    name: (look.__doc__ or "").splitlines()[0].rstrip(".")
    for name, look in (*DATABASE.items(), *KAFKA.items())
}
"""Every check, in the order of the findings, and what it looks at."""


def examine(
    settings: Settings,
    *,
    only: Collection[str] = (),
    skip: Collection[str] = (),
    timeout: float = TIMEOUT,
    limits: Limits | None = None,
) -> list[Finding]:
    """Look at database and Kafka, change nothing, and say what was found, in a fixed order.

    `only` and `skip` are names of checks. Blocks for up to a few times `timeout` seconds: call it
    from a thread where others must go on. Nothing that is wrong outside raises: a part that does
    not answer is a finding whose verdict is unknown. Raises ConfigurationError for a check that
    does not exist.
    """
    strange = sorted({*only, *skip} - CHECKS.keys())
    if strange:
        raise ConfigurationError(
            f"no check is named {', '.join(strange)}; there are: {', '.join(CHECKS)}"
        )
    wanted = [name for name in CHECKS if name not in skip and (not only or name in only)]
    first = [name for name in DATABASE if name in wanted]
    then = [name for name in KAFKA if name in wanted]
    findings: list[Finding] = []
    use: Use | None = None
    name = settings.database.schema_name
    try:
        with reading(
            settings.database_url, name, stage="doctor", connect_timeout=max(2, round(timeout))
        ) as conn:
            database = Database(conn, settings, limits or Limits(), timeout)
            for check in first:
                findings += _look(check, DATABASE[check](database), name)
            if then:
                use = _use(database)
    except OutboxError as error:
        findings += _out_of_reach(first[len({one.check for one in findings}) :], error)
    if then:
        findings += _examine_kafka(settings, use, then, timeout)
    return findings


def _examine_kafka(
    settings: Settings, use: Use | None, checks: list[str], timeout: float
) -> list[Finding]:
    try:
        cluster = look_at_cluster(settings, use, timeout)
    except OutboxError as error:
        return _out_of_reach(checks, error)
    findings: list[Finding] = []
    for check in checks:
        findings += _look(check, KAFKA[check](cluster))
    return findings


def _look(check: str, found: Iterator[Outcome], schema_name: str = "") -> list[Finding]:
    outcomes: list[Outcome] = []
    try:
        outcomes.extend(found)  # what was found before an error stays
    except psycopg.errors.QueryCanceled:
        outcomes.append(unknown("the database did not answer in time", "Run it with --timeout 60."))
    except psycopg.Error as error:
        if isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None:
            raise  # a mistake in the code, not of the server
        outcomes.append(unknown(str(in_words(error, schema_name)), "See the verdicts above."))
    except OutboxError as error:
        outcomes.append(unknown(str(error), "See the verdicts above."))
    return [Finding(check, one.verdict, one.evidence, one.next_step) for one in outcomes]


def _out_of_reach(checks: list[str], error: OutboxError) -> list[Finding]:
    """Say of the first check why it cannot be made, and of the others that it is the same."""
    return [
        Finding(check, Verdict.UNKNOWN, f"see {checks[0]}")
        if number
        else Finding(check, Verdict.UNKNOWN, str(error), "Make it reachable from here.")
        for number, check in enumerate(checks)
    ]


def _use(database: Database) -> Use | None:
    """Read which destinations are in use; None where the database does not tell."""
    try:
        with database.transaction():
            used = database.rows("list_used_destinations")
            sent = database.rows("list_sent", {"row_limit": _SENT_ROWS})
    except psycopg.Error:
        return None
    return Use(
        {row.destination: row.open_rows for row in used}, tuple(SentRow(*row) for row in sent)
    )
