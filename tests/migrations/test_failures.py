from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge.database.migrations import Migrator
from bridge.database.schema_files import read_migrations
from bridge.errors import SchemaError
from tests.migrations.test_up_down import LATEST, everything

if TYPE_CHECKING:
    from pathlib import Path

    from tests.migrations.conftest import AddMigrationFunction

Connection = psycopg.Connection[tuple[Any, ...]]

_FAILING = """\
-- A comment; with a semicolon.
create table :"schema".app_outbox_extra (id integer);

create function :"schema".extra() returns void language plpgsql as $$
begin
    perform 1; -- not a statement of its own
end
$$;

insert into :"schema".app_outbox_extra
values (1);
{statement}
"""


@pytest.mark.parametrize(
    ("statement", "place", "text"),
    [
        (
            "insert into :\"schema\".app_outbox_extra\nvalues ('x');",
            r"4 \(line 13\)",
            "invalid input",
        ),
        ("select 1 / 0;", r"4 \(line 12\)", "division by zero"),
        ('alter table :"schema".app_outbox_extra\nadd colum x int;', r"4 \(line 13\)", "syntax"),
    ],
)
def test_failed_migration_leaves_nothing_and_names_the_line(
    migrated: Connection,
    add_migration: AddMigrationFunction,
    statement: str,
    place: str,
    text: str,
) -> None:
    before = everything(migrated)
    ledger = migrated.execute("table app_outbox_migration").fetchall()
    folder = add_migration(_FAILING.format(statement=statement))
    name = rf"{LATEST + 1:04d}_extra\.up\.sql"
    with pytest.raises(SchemaError, match=rf"{name}, statement {place}: .*{text}"):
        Migrator(migrated, directory=folder).up()
    assert everything(migrated) == before
    assert migrated.execute("table app_outbox_migration").fetchall() == ledger
    Migrator(migrated).verify()


def test_failed_first_migration_does_not_even_leave_the_schema(
    empty: Connection, tmp_path: Path
) -> None:
    (tmp_path / "0001_bad.up.sql").write_text('create table :"schema".t (id int);\nselect 1 / 0;\n')
    (tmp_path / "0001_bad.down.sql").write_text('drop table :"schema".t;\n')
    before = everything(empty)
    with pytest.raises(SchemaError, match=r"0001_bad.up.sql, statement 2 \(line 2\)"):
        Migrator(empty, "fresh", tmp_path).up()
    assert everything(empty) == before


def test_failed_down_leaves_everything(
    migrated: Connection, add_migration: AddMigrationFunction
) -> None:
    folder = add_migration(
        'create table :"schema".app_outbox_extra (id integer);',
        'drop table :"schema".app_outbox_extra;\nselect 1 / 0;',
    )
    migrator = Migrator(migrated, directory=folder)
    migrator.up()
    before = everything(migrated)
    name = rf"{LATEST + 1:04d}_extra\.down\.sql"
    with pytest.raises(SchemaError, match=rf"{name}, statement 2 \(line 2\)"):
        migrator.down(0)
    assert everything(migrated) == before
    assert [state.state for state in migrator.status()] == ["applied"] * (LATEST + 1)


def test_table_of_somebody_else_is_named_and_left_alone(empty: Connection) -> None:
    empty.execute("create table app_outbox (id integer)")
    empty.execute("insert into app_outbox values (7)")
    with pytest.raises(SchemaError, match=r"0001_outbox.up.sql, statement 1 .*another --schema"):
        Migrator(empty).up()
    with pytest.raises(SchemaError, match="that outbox-bridge did not create"):
        Migrator(empty).verify()
    assert empty.execute("table app_outbox").fetchall() == [(7,)]


def test_role_without_rights_learns_whom_to_ask(empty: Connection) -> None:
    empty.execute("revoke create on schema public from public")
    empty.execute("set role pg_monitor")
    with pytest.raises(SchemaError, match="may not create it; let an administrator"):
        Migrator(empty, "fresh").up()
    with pytest.raises(SchemaError, match=r"permission denied.*owner of the schema"):
        Migrator(empty).up()


def test_locked_table_gives_up_after_a_while_and_can_be_run_again(
    migrated: Connection,
    database_url: str,
    add_migration: AddMigrationFunction,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bridge.database.migrations.LOCK_TIMEOUT", "50ms")
    folder = add_migration('alter table :"schema".app_outbox add column extra integer;')
    with psycopg.connect(database_url) as other:
        other.execute("lock table app_outbox in row exclusive mode")
        with pytest.raises(SchemaError, match=r"locked for more than .* run the command again"):
            Migrator(migrated, directory=folder).up()
    assert len(Migrator(migrated, directory=folder).up()) == 1


@pytest.mark.parametrize("to", [-1, LATEST + 1, 99])
def test_unknown_target_is_refused(migrated: Connection, to: int) -> None:
    with pytest.raises(SchemaError, match="there is no migration"):
        Migrator(migrated).up(to)
    with pytest.raises(SchemaError, match="there is no migration"):
        Migrator(migrated).down(to)


@pytest.mark.parametrize(
    ("files", "text"),
    [
        (["0002_b.up.sql", "0002_b.down.sql"], "0001 is missing"),
        (["0001_a.up.sql"], "lacks its up or its down"),
        (["0001_a.up.sql", "0001_b.down.sql"], "lacks its up or its down"),
        (["0001_a.up.sql", "0001_b.up.sql"], "two migrations are numbered 0001"),
        (["1_a.up.sql"], "is not named"),
        ([], "no migrations"),
    ],
)
def test_incomplete_folder_is_refused(tmp_path: Path, files: list[str], text: str) -> None:
    for name in files:
        (tmp_path / name).write_text("select 1;")
    with pytest.raises(SchemaError, match=text):
        read_migrations(tmp_path)
