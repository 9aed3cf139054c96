"""Our migrations as steps of Alembic's own history, online and offline (`--sql`).

Alembic itself is not imported: its `op` is passed in.
"""

from __future__ import annotations

from typing import Protocol

from sqlalchemy import text

from bridge.database.migration_script import script
from bridge.database.migration_sets import OUTBOX, migration_set
from bridge.database.sql_script import split_script
from bridge.enqueue_plan import DEFAULT_SCHEMA


class Operations(Protocol):
    """What is used of `alembic.op`."""

    def execute(self, sqltext: object, /) -> object:
        """Run one statement, or print it."""


def upgrade(
    op: Operations,
    start: int,
    end: int,
    *,
    schema: str = DEFAULT_SCHEMA,
    which: str = OUTBOX.name,
) -> None:
    """Apply migrations `start` + 1 to `end`, their ledger rows included; 0 is none yet.

    In the transaction of Alembic's migration. `outbox-bridge migrate status` and the relay see the
    same as after `migrate up`. `which` is `inbox` for a consumer's. Raises SchemaError where the
    numbers do not fit.
    """
    _execute(op, script(schema, start, end, chosen=migration_set(which)))


def downgrade(
    op: Operations,
    start: int,
    end: int,
    *,
    schema: str = DEFAULT_SCHEMA,
    which: str = OUTBOX.name,
) -> None:
    """Take migrations `start` to `end` + 1 away again, rows included."""
    _execute(op, script(schema, start, end, "down", chosen=migration_set(which)))


def _execute(op: Operations, sql: str) -> None:
    # One by one: asyncpg, and psycopg with parameters, take no scripts.
    for statement in split_script(sql):
        op.execute(text(statement.text.replace(":", r"\:")))
