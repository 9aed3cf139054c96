"""Turns the server's refusal of a migration into an error with a next step."""

from __future__ import annotations

import psycopg

from bridge.errors import SchemaError

LOCK_TIMEOUT = "10s"
"""How long one statement of a migration waits for a lock on a table."""


def error_line(error: psycopg.Error, statement: str, first_line: int) -> int:
    """Return the line of the file where the server saw the error, else the statement's first."""
    position = error.diag.statement_position
    if not position:
        return first_line
    return first_line + statement.count("\n", 0, int(position) - 1)


def migration_failed(error: psycopg.Error, where: str) -> SchemaError:
    """Return the error to raise; `where` names what was run."""
    text = error.diag.message_primary or str(error).strip() or type(error).__name__
    if error.diag.message_detail:
        text += f" ({error.diag.message_detail})"
    return SchemaError(f"{where}: {text}. Nothing of it was applied; {_advice(error)}")


def _advice(error: psycopg.Error) -> str:
    if isinstance(error, psycopg.errors.LockNotAvailable):
        return (
            f"a table was locked for more than {LOCK_TIMEOUT} by another transaction: end it (see "
            "pg_stat_activity) and run the command again"
        )
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
        return "this is a standby or a read-only database: use the primary's address"
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return "run the command as the owner of the schema"
    if isinstance(error, psycopg.errors.DuplicateTable):
        return (
            "the schema already holds such a table that the ledger does not know: choose another "
            "--schema, or move the table away"
        )
    if isinstance(error, psycopg.OperationalError):
        return "see that the server can be reached and run the command again"
    return "put the cause right and run the command again"
