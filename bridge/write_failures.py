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


def translate(  # noqa: PLR0911 - one for each kind
    error: psycopg.Error | UnicodeEncodeError, schema: str
) -> OutboxError | None:
    """Return the error to raise instead, or None where the caller's own retry must see psycopg's.

    None: lost connection, deadlock, serialization failure, time-outs, full disk …
    """
    text = getattr(getattr(error, "diag", None), "message_primary", None) or str(error)
    if isinstance(error, UnicodeEncodeError):
        return InvalidMessageError(
            f"the connection's client_encoding ({error.encoding}) cannot carry "
            f"{error.object[error.start : error.start + 20]!r}; set client_encoding to UTF8"
        )
    if isinstance(error, (errors.UndefinedTable, errors.InvalidSchemaName, errors.UndefinedColumn)):
        return SchemaError(
            f'schema "{schema}" has no outbox that fits this version ({text}); '
            f"run: {migrate_command(schema)}"
        )
    if isinstance(error, errors.InsufficientPrivilege):
        return EnqueueError(
            f'this role may not enqueue in schema "{schema}" ({text}); grant it outbox_writer '
            "(outbox-bridge migrate roles)"
        )
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return TransactionStateError(
            f"the transaction is read-only ({text}); enqueue on the primary, in a transaction that "
            "may write"
        )
    if isinstance(error, (errors.InFailedSqlTransaction, errors.PipelineAborted)):
        return TransactionStateError(
            f"the transaction has failed already ({text}): roll it back and run it again"
        )
    if isinstance(error, (errors.CharacterNotInRepertoire, errors.UntranslatableCharacter)):
        return InvalidMessageError(
            f"the database's encoding cannot hold the message ({text}); a UTF8 database can"
        )
    return None
