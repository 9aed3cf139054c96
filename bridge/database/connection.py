"""Connections of the bridge's own processes."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from bridge.errors import DatabaseError

_MAX_APPLICATION_NAME = 63
_PRIMARY_KNOWN = 140000
"""First libpq that knows `target_session_attrs=primary`."""
_UNANSWERED_MS = 20_000
"""How long sent bytes may stay unacknowledged until the peer counts as dead."""

READ_ONLY = (
    "the server is a standby, which is read-only; waiting for a primary (after a failover: let the "
    "database URL lead to the new primary, or name all hosts in it: postgresql://a,b/name)"
)
"""Said of a server that refuses writes."""


def connect(
    url: str | None,
    *,
    stage: str,
    relay_name: str = "outbox-bridge",
    autocommit: bool = True,
    connect_timeout: int = 10,
    primary: bool = False,
) -> psycopg.Connection[tuple[Any, ...]]:
    """Open a connection named `outbox-bridge/<relay>/<stage>` in pg_stat_activity.

    `url` is a libpq connection string or URL; None leaves everything to libpq's PG* variables.
    `primary` passes standbys over, so that a URL with several hosts leads to the one that writes.
    Raises DatabaseError that names server and reason, never the password.
    """
    try:
        return psycopg.connect(
            url or "",
            autocommit=autocommit,
            **connect_parameters(
                url,
                name=relay_name,
                stage=stage,
                connect_timeout=connect_timeout,
                primary=primary,
            ),
        )
    except psycopg.OperationalError as error:
        if "hot standby" in str(error):
            raise DatabaseError(f"cannot connect to PostgreSQL: {READ_ONLY}") from error
        raise DatabaseError(f"cannot connect to PostgreSQL: {first_line(error)}") from error
    except psycopg.ProgrammingError as error:
        raise DatabaseError(
            "the database URL cannot be read (expected postgresql://user@host:5432/name); "
            "check OUTBOX_BRIDGE_DATABASE_URL"
        ) from error


def connect_parameters(
    url: str | None, *, name: str, stage: str, connect_timeout: int = 10, primary: bool = False
) -> dict[str, Any]:
    """Return libpq's parameters beside the URL: a name, UTF-8, and a dead peer is noticed.

    `primary` passes standbys over. Raises psycopg.ProgrammingError for a URL that cannot be read.
    """
    room = _MAX_APPLICATION_NAME - len(f"outbox-bridge//{stage}")
    # The server writes other characters as several, and cuts the end: the stage.
    shown = name.encode("ascii", "replace").decode()[:room]
    return {
        **(_session_attributes(url) if primary else {}),
        "application_name": f"outbox-bridge/{shown}/{stage}",
        "connect_timeout": connect_timeout,
        "client_encoding": "UTF8",
        "keepalives": 1,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": _UNANSWERED_MS,
    }


def _session_attributes(url: str | None) -> dict[str, Any]:
    """Ask for a primary, unless the URL says itself what it wants."""
    if psycopg.pq.version() < _PRIMARY_KNOWN or "target_session_attrs" in conninfo_to_dict(
        url or ""
    ):
        return {}
    return {"target_session_attrs": "primary"}


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


_OF_THE_SESSION = (
    "default_transaction_isolation",
    "default_transaction_read_only",
    "tcp_keepalives_idle",
    "tcp_keepalives_interval",
    "tcp_keepalives_count",
)
"""Settings that mean nothing within one transaction, whose BEGIN says the first two itself."""


def prepare_session(
    connection: psycopg.Connection[Any], *, lock_timeout: float, guards: bool = True
) -> None:
    """Set what the relay's statements rely on, whatever the server's or the role's defaults.

    READ COMMITTED (a claim must see what is committed now), no statement time-out (a settle must
    not be cut off), a lock time-out in seconds (a person's open transaction must not stall us). The
    server ends the session of a relay that was frozen, or whose host died, amid a transaction:
    its locks must not outlive the lease.
    """
    connection.execute(*set_config(_settings(lock_timeout, guards=guards), local=False))


def transaction_settings(lock_timeout: float) -> tuple[bytes, dict[str, str]]:
    """Return the statement that sets the same for one transaction alone, with its parameters.

    For connections through a pooler, whose sessions belong to others in the next moment.
    """
    settings = _settings(lock_timeout, guards=True)
    return set_config(
        {name: value for name, value in settings.items() if name not in _OF_THE_SESSION},
        local=True,
    )


def _settings(lock_timeout: float, *, guards: bool) -> dict[str, str]:
    return {
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


def set_config(settings: dict[str, str], *, local: bool) -> tuple[bytes, dict[str, str]]:
    """Return the statement that makes these settings, with its parameters."""
    query = "select " + ", ".join(
        f"pg_catalog.set_config(%(n{i})s, %(v{i})s, {'true' if local else 'false'})"
        for i in range(len(settings))
    )
    parameters: dict[str, str] = {}
    for i, (name, value) in enumerate(settings.items()):
        parameters[f"n{i}"] = name
        parameters[f"v{i}"] = value
    return query.encode(), parameters
