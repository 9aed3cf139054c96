"""`verify` finds what was altered behind the migrations' back."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge.database.inventory import SchemaObject, expected_objects
from bridge.database.migrations import Migrator, script
from bridge.database.schema_files import read_migrations
from bridge.database.statements import load
from bridge.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.postgres import PostgresServer

_numbers = itertools.count(1)
Connection = psycopg.Connection[tuple[Any, ...]]

_REPLACED = (
    "create or replace function app_outbox_audit_refuse() returns trigger"
    " language plpgsql as 'begin return null; end'"
)


@pytest.fixture(scope="module")
def shared(postgres: PostgresServer) -> Iterator[Connection]:
    """One database for the module; each test has a schema of its own."""
    url = postgres.create_database()
    with psycopg.connect(url, autocommit=True) as conn:
        yield conn
    postgres.drop_database(url)


@pytest.fixture
def migrator(shared: Connection) -> Migrator:
    """A migrated schema of a new name, first in the shared connection's search_path."""
    schema = f"outbox_{next(_numbers)}"
    shared.execute(f"set search_path = {schema}".encode())
    migrator = Migrator(shared, schema)
    migrator.up()
    return migrator


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("drop trigger app_outbox_after_insert on app_outbox", "after_insert is missing"),
        ("alter table app_outbox disable trigger app_outbox_after_insert", "is disabled"),
        ("alter table app_outbox disable trigger all", "is disabled"),
        ("alter table app_outbox enable replica trigger app_outbox_after_update", "replicas only"),
        (
            "alter table app_outbox drop column sent_topic",
            "column app_outbox.sent_topic is missing",
        ),
        ("drop table app_outbox_failed cascade", "table app_outbox_failed is missing"),
        ("drop view outbox_by_status", "view outbox_by_status is missing"),
        ("alter table app_outbox set unlogged", "table app_outbox is unlogged"),
        ("alter table app_outbox drop constraint app_outbox_message_key_key", "is missing"),
        ("drop index app_outbox_queue_due_idx", "app_outbox_queue_due_idx is missing"),
        (
            "drop function outbox_enqueue(text, text, text, json, jsonb, text, timestamptz, text)",
            "function outbox_enqueue is missing",
        ),
        (
            _REPLACED,
            "function app_outbox_audit_refuse was altered",
        ),
        (
            "alter table app_outbox rename column claim_id to fence",
            "app_outbox.claim_id is missing",
        ),
        ("drop table app_outbox_migration", "has no app_outbox_migration"),
    ],
)
def test_altered_schema_is_refused(
    shared: Connection, migrator: Migrator, statement: str, text: str
) -> None:
    migrator.verify()
    shared.execute(statement.encode())
    with pytest.raises(SchemaError, match=text):
        migrator.verify()


def test_every_fault_is_listed(shared: Connection, migrator: Migrator) -> None:
    shared.execute("drop index app_outbox_queue_due_idx, app_outbox_queue_lane_idx")
    with pytest.raises(SchemaError, match=r"due_idx is missing; .*lane_idx is missing"):
        migrator.verify()


def test_additions_of_an_administrator_are_no_drift(shared: Connection, migrator: Migrator) -> None:
    shared.execute("create index mine on app_outbox (created_at)")
    shared.execute("alter table app_outbox add column tenant text")
    shared.execute("create table business (id integer)")
    shared.execute("alter table app_outbox enable always trigger app_outbox_after_insert")
    migrator.verify()


def test_inventory_is_exactly_what_the_migrations_make(migrated: Connection) -> None:
    """What `verify` reads off the files is all that stands in the catalog, but implicit keys."""
    expected = expected_objects([script("public", 0, len(read_migrations()))])
    oid = migrated.execute("select 'public'::regnamespace::oid").fetchone()
    assert oid is not None
    rows = migrated.execute(load("list_schema_objects", "public"), {"schema_oid": oid[0]})
    actual = {SchemaObject(kind, name) for kind, name, _ in rows}
    implicit = {
        item
        for item in actual
        if item.kind in {"index", "constraint"} and item.name.endswith(("_pkey", "_key"))
    }
    # PostgreSQL 18 keeps NOT NULL as constraints; those are the columns' own.
    assert actual - implicit == set(expected) - implicit


_FIRST = """
create table "s".a (
    id int,
    constraint a_check check (id > 0)
);
comment on column "s".a.id is 'x';
comment on column "s".a.old is 'x';
create index a_idx on "s".a (id);
create index a_old_idx on "s".a (id);
create trigger t after insert on "s".a for each row execute function f();
create table "s".b (id int);
create index b_idx on "s".b (id);
create function "s".f(x int) returns int language sql as $$ select 1 $$;
create function "s".g() returns int language sql as $$ select 1 $$;
"""

_SECOND = """
alter table "s".a drop column old;
alter table "s".a drop constraint a_check;
alter table "s".a add constraint a_more check (id > 1);
drop index "s".a_old_idx;
drop table "s".b;
drop trigger t on "s".a;
drop function "s".g();
create or replace function "s".f(x int) returns int language sql as $$ select 2 $$;
"""


def test_inventory_follows_drops() -> None:
    assert expected_objects([_FIRST, _SECOND]) == {
        SchemaObject("table", "a"): "",
        SchemaObject("column", "a.id"): "",
        SchemaObject("index", "a.a_idx"): "",
        SchemaObject("constraint", "a.a_more"): "",
        SchemaObject("function", "f"): " select 2 ",
    }
