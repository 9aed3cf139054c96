"""`outbox-bridge migrate`: create the schema, change it, look at it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bridge.cli.options import (
    ConfigOption,
    DatabaseUrlOption,
    JsonOption,
    SchemaOption,
    settings_from,
)
from bridge.cli.output import Output, moment
from bridge.errors import OperationError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bridge.database.migrations import Migration, Migrator

app = typer.Typer(no_args_is_help=True, help="Create or change the schema.")

SetName = Literal["outbox", "inbox"]
SetOption = Annotated[
    SetName,
    typer.Option("--set", help="What for: the outbox of writers and relays, a consumer's inbox."),
]


@app.command()
def up(
    *,
    to: Annotated[
        int | None, typer.Option("--to", metavar="N", help="Stop after this migration.")
    ] = None,
    chosen: SetOption = "outbox",
    config: ConfigOption = None,
    database_url: DatabaseUrlOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """Apply what is pending. Several may run at once; each file is one transaction.

    Examples:
      outbox-bridge migrate up
      outbox-bridge migrate up --schema messaging
      outbox-bridge migrate up --set inbox --database-url postgresql://localhost/billing
    """
    with _migrator(config, database_url, schema, chosen) as (migrator, name):
        applied = migrator.up(to)
    _report(applied, name, "applied", as_json=json)


@app.command()
def down(
    *,
    to: Annotated[
        int | None,
        typer.Option("--to", metavar="N", help="Last migration that stays; 0 for none."),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Destroy the rows in what is dropped.")
    ] = False,
    chosen: SetOption = "outbox",
    config: ConfigOption = None,
    database_url: DatabaseUrlOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """Take migrations away again, newest first.

    Destroys the rows in what is dropped, so it needs --to and --yes.

    Examples:
      outbox-bridge migrate down --to 1 --yes
      outbox-bridge migrate down --to 0 --yes
    """
    if to is None:
        raise OperationError("say how far down: --to N keeps migrations 1 to N, --to 0 keeps none")
    if not yes:
        raise OperationError(
            f"migrate down --to {to} destroys rows for good; stop the relays, keep a backup, and "
            "repeat the command with --yes"
        )
    with _migrator(config, database_url, schema, chosen) as (migrator, name):
        removed = migrator.down(to)
    _report(removed, name, "removed", as_json=json)


@app.command()
def status(
    *,
    chosen: SetOption = "outbox",
    config: ConfigOption = None,
    database_url: DatabaseUrlOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """Show every migration and its state.

    The states: applied, pending, changed (applied with other content), unknown (newer than this
    version of outbox-bridge).
    """
    with _migrator(config, database_url, schema, chosen) as (migrator, name):
        states = migrator.status()
    output = Output(as_json=json)
    if json:
        output.json({"schema": name, "migrations": states})
        return
    output.table(
        ["version", "name", "state", "applied at", "by", "outbox-bridge"],
        [
            [s.version, s.name, s.state, moment(s.applied_at), s.applied_by, s.tool_version]
            for s in states
        ],
    )


@app.command()
def verify(
    *,
    chosen: SetOption = "outbox",
    config: ConfigOption = None,
    database_url: DatabaseUrlOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """Check that the schema is what the migrations made.

    Compares checksums and looks for missing or disabled parts, as the relay does at start; exits
    with 3 where something is wrong.
    """
    with _migrator(config, database_url, schema, chosen) as (migrator, name):
        migrator.verify()
    output = Output(as_json=json)
    if json:
        output.json({"schema": name, "verified": True})
    else:
        output.line(f'schema "{name}" is what this version needs')


@app.command("sql")
def print_sql(
    *,
    start: Annotated[
        int | None, typer.Option("--from", metavar="N", help="Version before (default: 0).")
    ] = None,
    end: Annotated[
        int | None, typer.Option("--to", metavar="N", help="Version after (default: the newest).")
    ] = None,
    down: Annotated[
        bool, typer.Option("--down", help="The way back: --from the newest --to the one before.")
    ] = False,
    chosen: SetOption = "outbox",
    config: ConfigOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """Print the migrations as plain SQL, for Alembic, Django, Flyway. Needs no database.

    It holds no BEGIN or COMMIT: the tool that runs it opens the transaction.

    Examples:
      outbox-bridge migrate sql --from 0 --to 2 > V7__outbox.sql
      outbox-bridge migrate sql | psql --single-transaction -v ON_ERROR_STOP=1
    """
    from bridge.database.migration_sets import migration_set  # noqa: PLC0415 - slow to import
    from bridge.database.migrations import script  # noqa: PLC0415 - psycopg is slow to import
    from bridge.database.schema_files import read_migrations  # noqa: PLC0415 - likewise

    wanted = migration_set(chosen)
    latest = len(read_migrations(chosen=wanted))
    if down:
        start = latest if start is None else start
        end = start - 1 if end is None else end
    else:
        start = start or 0
        end = latest if end is None else end
    name = settings_from(config, schema=schema).database.schema_name
    text = script(name, start, end, "down" if down else "up", chosen=wanted)
    _print(text, as_json=json)


@app.command()
def roles(
    *,
    chosen: SetOption = "outbox",
    config: ConfigOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """Print the SQL that creates the roles and their grants.

    Examples:
      outbox-bridge migrate roles | psql -v ON_ERROR_STOP=1
    """
    from bridge.database.migration_sets import migration_set  # noqa: PLC0415 - slow to import
    from bridge.database.migrations import check_schema_name  # noqa: PLC0415 - slow to import
    from bridge.database.schema_files import read_schema_file  # noqa: PLC0415 - likewise
    from bridge.database.template import render_script  # noqa: PLC0415 - likewise

    name = check_schema_name(settings_from(config, schema=schema).database.schema_name)
    text = read_schema_file("roles.sql", migration_set(chosen))
    _print(render_script(text, name), as_json=json)


@contextmanager
def _migrator(
    config: Path | None, database_url: str | None, schema: str | None, chosen: SetName
) -> Iterator[tuple[Migrator, str]]:
    from bridge.database.connection import connect  # noqa: PLC0415 - psycopg is slow to import
    from bridge.database.migration_sets import migration_set  # noqa: PLC0415 - likewise
    from bridge.database.migrations import Migrator  # noqa: PLC0415 - likewise

    settings = settings_from(config, database_url=database_url, schema=schema)
    name = settings.database.schema_name
    with connect(settings.database_url, stage="migrate") as conn:
        yield Migrator(conn, name, chosen=migration_set(chosen)), name


def _report(migrations: list[Migration], schema: str, verb: str, *, as_json: bool) -> None:
    output = Output(as_json=as_json)
    if as_json:
        done: list[dict[str, Any]] = [{"version": m.version, "name": m.name} for m in migrations]
        output.json({"schema": schema, verb: done})
        return
    for migration in migrations:
        output.line(f"{verb} {migration.version:04d}_{migration.name}")
    if not migrations:
        output.line("nothing to do")


def _print(text: str, *, as_json: bool) -> None:
    output = Output(as_json=as_json)
    if as_json:
        output.json({"sql": text})
    else:
        output.line(text.rstrip())
