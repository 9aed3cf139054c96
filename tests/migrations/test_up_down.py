from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg import sql

from bridge.database.migrations import Migrator
from bridge.database.schema_files import read_migrations
from bridge.errors import SchemaError
from bridge.version import __version__

Connection = psycopg.Connection[tuple[Any, ...]]

SCHEMAS = ["public", "messaging", "My Schema", 'q"uote', "a'b", "select", "größe", "x$y", "50%"]
LATEST = len(read_migrations())

_EVERYTHING = """
    select 'relation', n.nspname::text, c.relname::text
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname !~ '^(pg_|information_schema)'
    union all
    select 'function', n.nspname, p.proname
    from pg_proc p join pg_namespace n on n.oid = p.pronamespace
    where n.nspname !~ '^(pg_|information_schema)'
    union all
    select 'type', n.nspname, t.typname
    from pg_type t join pg_namespace n on n.oid = t.typnamespace
    where n.nspname !~ '^(pg_|information_schema)'
    union all
    select 'schema', '', n.nspname from pg_namespace n
    union all
    select 'extension', '', extname from pg_extension
    union all
    select 'event trigger', '', evtname from pg_event_trigger
    union all
    select 'publication', '', pubname from pg_publication
    union all
    select 'setting', '', array_to_string(setconfig, ',') from pg_db_role_setting
    order by 1, 2, 3
"""


def everything(conn: Connection) -> list[tuple[Any, ...]]:
    return conn.execute(_EVERYTHING).fetchall()


@pytest.mark.parametrize("schema", SCHEMAS)
def test_any_schema_name_carries_an_outbox(empty: Connection, schema: str) -> None:
    migrator = Migrator(empty, schema)
    assert [m.version for m in migrator.up()] == list(range(1, LATEST + 1))
    assert migrator.up() == []
    migrator.verify()
    table = sql.Identifier(schema, "app_outbox")
    empty.execute(
        sql.SQL(
            "insert into {} (message_key, event_type, destination, payload_json)"
            " values ('k', 'e', 'd', '{{}}')"
        ).format(table)
    )
    empty.execute(sql.SQL("update {} set status = 'CANCELLED'").format(table))
    empty.execute(sql.SQL("delete from {}").format(table))
    function = sql.Identifier(schema, "outbox_enqueue")
    row = empty.execute(
        sql.SQL("select created from {}('k', 'e', 'd', '1')").format(function)
    ).fetchone()
    assert row == (True,)


@pytest.mark.parametrize("schema", ["", "pg_outbox", "a\nb", "a\x00b", "a$$b", "x" * 64])
def test_impossible_schema_name_is_refused_before_anything_runs(
    empty: Connection, schema: str
) -> None:
    before = everything(empty)
    with pytest.raises(SchemaError, match="schema"):
        Migrator(empty, schema)
    assert everything(empty) == before


@pytest.mark.parametrize("schema", ["public", "My Schema"])
def test_up_down_up_leaves_what_up_left(empty: Connection, schema: str) -> None:
    before = everything(empty)
    migrator = Migrator(empty, schema)
    migrator.up()
    first = everything(empty)
    assert [m.version for m in migrator.down(0)] == list(range(LATEST, 0, -1))
    left = [row for row in everything(empty) if row != ("schema", "", schema)]
    assert left == [row for row in before if row != ("schema", "", schema)]
    assert migrator.down(0) == []
    migrator.up()
    assert everything(empty) == first
    migrator.verify()


def test_each_down_file_undoes_its_up_file(empty: Connection) -> None:
    migrator = Migrator(empty, "steps")
    snapshots = []
    for version in range(1, LATEST + 1):
        migrator.up(version)
        snapshots.append(everything(empty))
    for version in range(LATEST, 0, -1):
        assert everything(empty) == snapshots[version - 1]
        migrator.down(version - 1)


def test_migrations_create_nothing_outside_their_schema(empty: Connection) -> None:
    before = everything(empty)
    Migrator(empty, "messaging").up()
    added = set(everything(empty)) - set(before)
    assert {row[1] for row in added if row[0] != "schema"} == {"messaging"}
    empty.execute("drop schema messaging cascade")
    assert everything(empty) == before
    Migrator(empty, "messaging").up()
    Migrator(empty, "messaging").verify()


def test_two_schemas_of_one_database_do_not_meet(empty: Connection) -> None:
    Migrator(empty, "one").up()
    Migrator(empty, "two").up()
    Migrator(empty, "one").down(0)
    Migrator(empty, "two").verify()


def test_ledger_tells_who_applied_what_and_when(empty: Connection) -> None:
    Migrator(empty).up()
    rows = empty.execute(
        "select version, name, length(checksum), applied_by, tool_version, applied_at <= now()"
        " from app_outbox_migration order by version"
    ).fetchall()
    user = empty.info.user
    assert rows == [
        (migration.version, migration.name, 64, user, __version__, True)
        for migration in read_migrations()
    ]


def test_every_table_view_column_and_function_has_a_comment(migrated: Connection) -> None:
    missing = migrated.execute(
        """
        select c.relname, a.attname
        from pg_class c
        left join pg_attribute a
        on a.attrelid = c.oid and a.attnum >= 0 and not a.attisdropped
        where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'v')
        and (col_description(c.oid, a.attnum) is null or obj_description(c.oid, 'pg_class') is null)
        """
    ).fetchall()
    assert missing == []
    described = migrated.execute(
        "select count(*) from pg_proc where proname = 'outbox_enqueue'"
        " and obj_description(oid, 'pg_proc') is not null"
    ).fetchone()
    assert described == (1,)


def test_ten_replicas_start_at_once(empty_database_url: str) -> None:
    def start(_: int) -> list[int]:
        with psycopg.connect(empty_database_url, autocommit=True) as conn:
            return [m.version for m in Migrator(conn, "messaging").up()]

    with ThreadPoolExecutor(10) as pool:
        applied = [version for done in pool.map(start, range(10)) for version in done]
    assert sorted(applied) == list(range(1, LATEST + 1))
    with psycopg.connect(empty_database_url) as conn:
        Migrator(conn, "messaging").verify()


def test_role_and_database_defaults_do_not_matter(
    empty: Connection, empty_database_url: str
) -> None:
    """Serializable, read-only by default, a hostile search_path, backslash strings."""
    name = empty.info.dbname
    empty.execute("create schema evil")
    empty.execute(
        "create function evil.now() returns timestamptz language sql as 'select null::timestamptz'"
    )
    empty.execute(
        "create function evil.neq(varchar, varchar) returns bool language sql as 'select false'"
    )
    empty.execute("create operator evil.<> (leftarg=varchar, rightarg=varchar, function=evil.neq)")
    empty.execute("create domain evil.text as pg_catalog.text check (false)")
    for setting in (
        "default_transaction_isolation = 'serializable'",
        "default_transaction_read_only = on",
        "search_path = evil, pg_catalog",
        "standard_conforming_strings = off",
        "lock_timeout = '1ms'",
    ):
        empty.execute("set default_transaction_read_only = off")
        empty.execute(
            sql.SQL("alter database {} set {}").format(sql.Identifier(name), sql.SQL(setting))
        )
    with psycopg.connect(empty_database_url) as conn:
        migrator = Migrator(conn, "messaging")
        migrator.up()
        migrator.verify()
        migrator.down(0)
        migrator.up()
        assert conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        depends = conn.execute(
            "select count(*) from pg_catalog.pg_depend d"
            " where d.refobjid in (select p.oid from pg_catalog.pg_proc p"
            " where p.pronamespace = 'evil'::regnamespace)"
            " and d.classid <> 'pg_catalog.pg_operator'::regclass"
        ).fetchone()
        assert depends == (0,)


def test_migrating_inside_an_open_transaction_is_refused(empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url) as conn:
        conn.execute("select 1")
        with pytest.raises(SchemaError, match="commit or roll back first"):
            Migrator(conn).up()
