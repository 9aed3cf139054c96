"""Checks of what was set up: migrations, roles, publications."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from bridge.database.grants import expected_grants
from bridge.database.ledger import migrate_command
from bridge.database.migrations import Migrator
from bridge.database.reading import translated
from bridge.database.schema_files import read_migrations, read_schema_file
from bridge.doctor.finding import Outcome, ok, problem
from bridge.doctor.words import counted, listed
from bridge.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.doctor.database import Database

_ROLES_COMMAND = "outbox-bridge migrate roles | psql -v ON_ERROR_STOP=1"


def migrations(database: Database) -> Iterator[Outcome]:
    """Whether the schema is what this version needs, triggers and indexes included."""
    newest = read_migrations()[-1]
    migrator = Migrator(database.conn, database.schema)
    try:
        with translated(database.schema):
            ahead = migrator.check_compatible()
            migrator.verify()
    except SchemaError as error:
        yield problem(
            str(error),
            f"If migrations are pending: {migrate_command(database.schema)}. What was altered by "
            "hand is to be put back; `outbox-bridge migrate sql` shows how it was made.",
        )
        return
    more = "; the database is one ahead, which is how an upgrade begins" if ahead else ""
    yield ok(f'schema "{database.schema}" has migration {newest.version:04d} intact{more}')


def roles(database: Database) -> Iterator[Outcome]:
    """Whether the roles have every right of roles.sql, and everybody has none."""
    grants = expected_grants(read_schema_file("roles.sql"), database.schema)
    names = sorted({grant.role for grant in grants})
    with database.transaction():
        found = database.rows(
            "list_public_grants", {"schema_name": database.schema, "roles": names}
        )
        missing = database.rows(
            "find_missing_grants",
            {
                "roles": [grant.role for grant in grants],
                "kinds": [grant.kind for grant in grants],
                "objects": [grant.object for grant in grants],
                "columns": [grant.column for grant in grants],
                "privileges": [grant.privilege for grant in grants],
            },
        )
    there = [row.privilege for row in found if not row.object_name]
    public = [f"{row.privilege} on {row.object_name}" for row in found if row.object_name]
    if public:
        yield problem(
            f"everybody (PUBLIC) has {listed(public)}",
            f"revoke all on the outbox tables from public; then {_ROLES_COMMAND}",
        )
    # Functions and the schema may be everybody's; tables are granted by roles.sql alone.
    tables = {grant.object for grant in grants if grant.kind == "table"}
    on_tables = [row for row in missing if row.object_name in tables]
    if len(on_tables) == sum(grant.kind == "table" and grant.role in there for grant in grants):
        if not public:
            yield ok(
                "roles.sql was not run for this schema: whoever connects has rights of its own"
            )
        return
    absent = [name for name in names if name not in there]
    if absent:
        yield problem(f"role {listed(absent)} does not exist, others do", _ROLES_COMMAND)
    for role, lacks in groupby(missing, key=lambda row: row.role_name):
        rights = [f"{row.privilege} on {row.object_name}" for row in lacks]
        yield problem(f"{role} lacks {listed(list(dict.fromkeys(rights)), 5)}", _ROLES_COMMAND)
    if not (missing or absent or public):
        yield ok(f"{listed(there)} have {counted(len(grants), 'right')}, as roles.sql grants them")


def publications(database: Database) -> Iterator[Outcome]:
    """Whether published tables can publish what the relay does to them."""
    with database.transaction():
        rows = database.rows("list_published", {"schema_name": database.schema})
    unfit = [row for row in rows if not row.is_fit]
    for name, tables in groupby(unfit, key=lambda row: row.publication):
        wrong = [row.table_name for row in tables]
        yield problem(
            f"publication {name} contains {listed(wrong)} without a usable replica identity: "
            "PostgreSQL refuses every UPDATE and DELETE there, so rows are not claimed",
            "; ".join(
                f'alter table "{database.schema}".{table} replica identity '
                + ("default" if table in {"app_outbox", "app_outbox_failed"} else "full")
                for table in wrong
            ),
        )
    if not unfit:
        published = sorted({row.publication for row in rows})
        yield ok(
            f"published by {listed(published)}, each table with a replica identity"
            if published
            else "no publication contains an outbox table"
        )
