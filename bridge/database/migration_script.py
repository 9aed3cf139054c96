"""The migrations as plain SQL, for tools that keep an order of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

from bridge.database.migration_sets import OUTBOX, MigrationSet
from bridge.database.schema_files import Direction, Migration, read_migrations, read_schema_file
from bridge.database.template import render_script
from bridge.errors import SchemaError
from bridge.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

_MAX_SCHEMA_BYTES = 63


def script(
    schema: str,
    start: int,
    end: int,
    direction: Direction = "up",
    directory: Path | None = None,
    *,
    chosen: MigrationSet = OUTBOX,
) -> str:
    """Return the plain SQL that leads from version `start` to `end`, ledger rows included.

    Runs in any client, as one transaction, which the caller opens: made for Alembic, Django and
    Flyway. Raises SchemaError where the numbers do not fit the direction.
    """
    check_schema_name(schema)
    known = read_migrations(directory, chosen)
    low, high = (start, end) if direction == "up" else (end, start)
    if not 0 <= low < high <= len(known):
        raise SchemaError(
            f"there is no way {direction} from {start} to {end}; this version of outbox-bridge "
            f"knows 1 to {len(known)}, and 0 for none"
        )
    steps = f"{chosen.name} migrations {direction} from {start} to {end}"
    parts = [f"-- outbox-bridge {__version__}, {steps}. Run it in one transaction."]
    if direction == "up" and low == 0:
        if schema != "public":
            created = sql.SQL("create schema if not exists {};").format(sql.Identifier(schema))
            parts.append(created.as_string(None))
        parts.append(render_script(read_schema_file("ledger.sql", chosen), schema).strip())
    wanted = known[low:high]
    for migration in wanted if direction == "up" else reversed(wanted):
        parts.append(f"-- {migration.file_name(direction)}")
        parts.append(render_script(migration.text(direction), schema).strip())
        change = ledger_insert if direction == "up" else ledger_delete
        parts.append(change(migration, schema, chosen) + ";")
    return "\n\n".join(parts) + "\n"


def check_schema_name(schema: str) -> str:
    """Return the name; raise SchemaError for one that PostgreSQL or the SQL files cannot carry."""
    if not schema:
        raise SchemaError("the schema's name is empty; the default is public")
    if len(schema.encode(errors="replace")) > _MAX_SCHEMA_BYTES:
        raise SchemaError(f"schema name {schema!r} is longer than {_MAX_SCHEMA_BYTES} bytes")
    if schema.startswith("pg_"):
        raise SchemaError(f"schema name {schema!r}: names with pg_ belong to PostgreSQL")
    if "$$" in schema or not schema.isprintable():
        raise SchemaError(f"schema name {schema!r} must not hold control characters or $$")
    return schema


def ledger_insert(migration: Migration, schema: str, chosen: MigrationSet = OUTBOX) -> str:
    """Return the statement that records an applied migration, without its semicolon."""
    values = (migration.version, migration.name, migration.checksum, __version__)
    return (
        sql.SQL("insert into {} (version, name, checksum, tool_version)\nvalues ({})")
        .format(
            sql.Identifier(schema, chosen.ledger),
            sql.SQL(", ").join(sql.Literal(v) for v in values),
        )
        .as_string(None)
    )


def ledger_delete(migration: Migration, schema: str, chosen: MigrationSet = OUTBOX) -> str:
    """Return the statement that forgets a migration; the first takes the ledger with it."""
    table = sql.Identifier(schema, chosen.ledger)
    if migration.version == 1:
        return sql.SQL("drop table {}").format(table).as_string(None)
    return (
        sql.SQL("delete from {} where version = {}")
        .format(table, sql.Literal(migration.version))
        .as_string(None)
    )
