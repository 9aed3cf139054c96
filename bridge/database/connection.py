"""Connections of the bridge's own processes."""

from __future__ import annotations

from typing import Any

import psycopg

from bridge.errors import DatabaseError

_MAX_APPLICATION_NAME = 63


def connect(
    url: str | None,
    *,
    stage: str,
    relay_name: str = "outbox-bridge",
    autocommit: bool = True,
    connect_timeout: int = 10,
) -> psycopg.Connection[tuple[Any, ...]]:
    """Open a connection named `outbox-bridge/<relay>/<stage>` in pg_stat_activity.

    `url` is a libpq connection string or URL; None leaves everything to libpq's PG* variables.
    Raises DatabaseError that names server and reason, never the password.
    """
    room = _MAX_APPLICATION_NAME - len(f"outbox-bridge//{stage}")
    # The server writes other characters as several, and cuts the end: the stage.
    name = f"outbox-bridge/{relay_name.encode('ascii', 'replace').decode()[:room]}/{stage}"
    try:
        return psycopg.connect(
            url or "",
            autocommit=autocommit,
            application_name=name,
            connect_timeout=connect_timeout,
            client_encoding="UTF8",
            keepalives=1,
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=3,
        )
    except psycopg.OperationalError as error:
        raise DatabaseError(f"cannot connect to PostgreSQL: {first_line(error)}") from error
    except psycopg.ProgrammingError as error:
        raise DatabaseError(
            "the database URL cannot be read (expected postgresql://user@host:5432/name); "
            "check OUTBOX_BRIDGE_DATABASE_URL"
        ) from error


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text: libpq adds hints over several lines."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


# Every hot statement looks rows up by key, so nested loops over indexes are right whatever the
# statistics say; a fresh or bulk-loaded table must not lead the planner to scan it.
PLANNER_GUARDS: dict[str, str] = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}


def prepare_session(
    connection: psycopg.Connection[Any], *, lock_timeout: float, guards: bool = True
) -> None:
    """Set what the relay's statements rely on, whatever the server's or the role's defaults.

    READ COMMITTED (a claim must see what is committed now), no statement time-out (a settle must
    not be cut off), a lock time-out in seconds (a person's open transaction must not stall us). The
    server ends the session of a relay that was frozen, or whose host died, amid a transaction:
    its locks must not outlive the lease.
    """
    settings = {
        "default_transaction_isolation": "read committed",
        "default_transaction_read_only": "off",
        "statement_timeout": "0",
        "idle_in_transaction_session_timeout": "30s",
        "tcp_keepalives_idle": "10",
        "tcp_keepalives_interval": "5",
        "tcp_keepalives_count": "3",
        # What a person decides about a row takes its fencing token away; what a relay does, not.
        "outbox_bridge.session": "relay",
        "lock_timeout": f"{max(1, int(lock_timeout * 1000))}ms",
        **(PLANNER_GUARDS if guards else {}),
    }
    query = "select " + ", ".join(
        f"pg_catalog.set_config(%(n{i})s, %(v{i})s, false)" for i in range(len(settings))
    )
    parameters: dict[str, str] = {}
    for i, (name, value) in enumerate(settings.items()):
        parameters[f"n{i}"] = name
        parameters[f"v{i}"] = value
    connection.execute(query.encode(), parameters)
