"""Which of the server's errors say something about the message, the role or the schema."""

from __future__ import annotations

import psycopg
from psycopg import errors

from bridge.database.ledger import migrate_command
from bridge.errors import (
    EnqueueError,
    InvalidMessageError,
    OutboxError,
    SchemaError,
    TransactionStateError,
)

_FAILED_TRANSACTION = "25P02"


def translate(error: psycopg.Error | UnicodeEncodeError, schema: str) -> OutboxError | None:
    """Return the error to raise instead, or None where the caller's own retry must see psycopg's.

    None: lost connection, deadlock, serialization failure, time-outs, full disk …
    """
    if isinstance(error, UnicodeEncodeError):
        return InvalidMessageError(
            f"the connection's client_encoding ({error.encoding}) cannot carry "
            f"{error.object[error.start : error.start + 20]!r}; set client_encoding to UTF8"
        )
    if isinstance(error, errors.PipelineAborted):
        return _translate_state(_FAILED_TRANSACTION, str(error), schema)
    return translate_driver_error(error, schema)


def translate_driver_error(error: BaseException | None, schema: str) -> OutboxError | None:
    """Do what `translate` does for an error of psycopg, psycopg2 or asyncpg."""
    # psycopg2 says pgcode; asyncpg's text is the server's message alone.
    sqlstate = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    diagnostics = getattr(error, "diag", None)
    text = getattr(diagnostics, "message_primary", None) or str(error)
    return _translate_state(sqlstate, text, schema)


def _translate_state(sqlstate: str | None, text: str, schema: str) -> OutboxError | None:
    match sqlstate:
        # undefined_table, invalid_schema_name, undefined_column
        case "42P01" | "3F000" | "42703":
            return SchemaError(
                f'schema "{schema}" has no outbox that fits this version ({text}); '
                f"run: {migrate_command(schema)}"
            )
        case "42501":  # insufficient_privilege
            return EnqueueError(
                f'this role may not enqueue in schema "{schema}" ({text}); grant it outbox_writer '
                "(outbox-bridge migrate roles)"
            )
        case "25006":  # read_only_sql_transaction
            return TransactionStateError(
                f"the transaction is read-only ({text}); enqueue on the primary, in a transaction "
                "that may write"
            )
        case "25P02":  # in_failed_sql_transaction
            return TransactionStateError(
                f"the transaction has failed already ({text}): roll it back and run it again"
            )
        case "22021" | "22P05":  # character_not_in_repertoire, untranslatable_character
            return InvalidMessageError(
                f"the database's encoding cannot hold the message ({text}); a UTF8 database can"
            )
        case _:
            return None
