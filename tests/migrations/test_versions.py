"""A program of version N works beside schema N and N + 1, and refuses everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge.database.migrations import Migrator
from bridge.errors import SchemaError
from tests.migrations.test_up_down import LATEST

if TYPE_CHECKING:
    from tests.fixtures.cli import RunCliFunction
    from tests.fixtures.kafka import KafkaBroker
    from tests.migrations.conftest import AddMigrationFunction

Connection = psycopg.Connection[tuple[Any, ...]]

_ADDITION = 'alter table :"schema".app_outbox add column extra_{0} integer;'


def test_database_one_version_ahead_is_accepted(
    migrated: Connection, add_migration: AddMigrationFunction
) -> None:
    newer = Migrator(migrated, directory=add_migration(_ADDITION.format(1)))
    newer.up()
    newer.verify()
    ours = Migrator(migrated)
    assert ours.check_compatible() == 1
    ours.verify()
    assert ours.up() == []
    assert [state.state for state in ours.status()] == [*["applied"] * LATEST, "unknown"]
    row = migrated.execute("select created from outbox_enqueue('k', 'e', 'd', '1')").fetchone()
    assert row == (True,)


def test_a_relay_runs_beside_a_schema_one_version_ahead(
    add_migration: AddMigrationFunction,
    database_url: str,
    kafka: KafkaBroker,
    run_cli: RunCliFunction,
) -> None:
    with psycopg.connect(database_url, autocommit=True) as conn:
        Migrator(conn, directory=add_migration(_ADDITION.format(1))).up()
        conn.execute("select outbox_enqueue('k', 'e', 'one-ahead', '1')")
    run_cli("relay", "--until-empty")
    assert '"SENT": 1' in run_cli("status", "--json").stdout


def test_next_version_may_replace_a_function(
    migrated: Connection, add_migration: AddMigrationFunction
) -> None:
    folder = add_migration(
        'create or replace function :"schema".app_outbox_audit_refuse() returns trigger\n'
        "language plpgsql as $$ begin raise exception 'no'; end $$;"
    )
    Migrator(migrated, directory=folder).up()
    Migrator(migrated, directory=folder).verify()
    Migrator(migrated).verify()


def test_database_two_versions_ahead_is_refused(
    migrated: Connection, add_migration: AddMigrationFunction
) -> None:
    add_migration(_ADDITION.format(1))
    Migrator(migrated, directory=add_migration(_ADDITION.format(2), name="more")).up()
    ours = Migrator(migrated)
    refused = rf"is at migration {LATEST + 2:04d} \(more\), 2 ahead .* install outbox-bridge"
    for call in (ours.check_compatible, ours.verify, ours.up):
        with pytest.raises(SchemaError, match=refused):
            call()
    assert [state.state for state in ours.status()][LATEST:] == ["unknown", "unknown"]


def test_down_of_a_newer_migration_is_refused(
    migrated: Connection, add_migration: AddMigrationFunction
) -> None:
    Migrator(migrated, directory=add_migration(_ADDITION.format(1))).up()
    with pytest.raises(SchemaError, match="no down file"):
        Migrator(migrated).down(0)


def test_database_behind_is_refused_with_the_command(
    migrated: Connection, add_migration: AddMigrationFunction
) -> None:
    newer = Migrator(migrated, directory=add_migration(_ADDITION.format(1)))
    for call in (newer.check_compatible, newer.verify):
        needs = rf"is at migration {LATEST:04d}.*needs {LATEST + 1:04d}.*migrate up"
        with pytest.raises(SchemaError, match=needs):
            call()
    assert [state.state for state in newer.status()] == [*["applied"] * LATEST, "pending"]


def test_missing_schema_is_refused_with_the_command(empty: Connection) -> None:
    with pytest.raises(SchemaError, match=r"schema .a b. does not exist.*up --schema 'a b'"):
        Migrator(empty, "a b").check_compatible()
    with pytest.raises(SchemaError, match='"public" has no app_outbox_migration'):
        Migrator(empty).verify()
    assert {state.state for state in Migrator(empty).status()} == {"pending"}


def test_file_changed_after_it_was_applied_is_refused(
    migrated: Connection, add_migration: AddMigrationFunction
) -> None:
    folder = add_migration(_ADDITION.format(1))
    first = folder / "0001_outbox.up.sql"
    first.write_text(first.read_text() + "-- changed\n")
    migrator = Migrator(migrated, directory=folder)
    for call in (migrator.check_compatible, migrator.verify, migrator.up):
        with pytest.raises(
            SchemaError, match=r"0001_outbox.up.sql was applied at .* other content"
        ):
            call()
    with pytest.raises(SchemaError, match="other content"):
        migrator.down(0)
    assert [state.state for state in migrator.status()] == [
        "changed",
        *["applied"] * (LATEST - 1),
        "pending",
    ]


def test_line_ends_do_not_change_a_checksum(
    migrated: Connection, add_migration: AddMigrationFunction
) -> None:
    folder = add_migration("select 1;")
    for path in folder.glob(f"{LATEST + 1:04d}*"):
        path.unlink()
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    Migrator(migrated, directory=folder).verify()


def test_gap_in_the_ledger_is_refused(migrated: Connection) -> None:
    migrated.execute("delete from app_outbox_migration where version = 1")
    with pytest.raises(SchemaError, match="has migration 0002 but not 0001"):
        Migrator(migrated).up()
