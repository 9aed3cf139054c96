"""Says which schema version actions need, where the database is older."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg

from bridge.database.connection import first_line
from bridge.database.ledger import migrate_command
from bridge.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA_VERSION = 6
"""The migration that brings the functions and the audit's chain."""


@contextmanager
def needs_schema(schema: str, what: str) -> Iterator[None]:
    """Turn the lack of a function, table or column into SchemaError; other errors pass."""
    try:
        yield
    except (
        psycopg.errors.UndefinedFunction,
        psycopg.errors.UndefinedTable,
        psycopg.errors.UndefinedColumn,
        psycopg.errors.InvalidSchemaName,
    ) as error:
        raise SchemaError(
            f'{what} needs schema version {SCHEMA_VERSION} and schema "{schema}" is older or '
            f"missing ({first_line(error)}); run: {migrate_command(schema)}"
        ) from error
