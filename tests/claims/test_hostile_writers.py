"""A writer's search_path, objects and rights neither break nor subvert the triggers."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

from tests.claims.outbox import count, faults, insert
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.claims.conftest import OpenConnection
    from tests.claims.desk import Desk

Conn = psycopg.Connection[Any]

_numbers = itertools.count(1)

# Every operator and function that the triggers use, under the same name and worse.
_SHADOWS = """
    create schema evil;
    grant usage, create on schema evil to {writer};
    create function evil.refuse() returns boolean language plpgsql as
    $$ begin raise exception 'shadowed'; end $$;
    create function evil.eq(varchar, varchar) returns boolean language sql
    as 'select evil.refuse()';
    create function evil.eq(varchar, text) returns boolean language sql as 'select evil.refuse()';
    create function evil.eq(text, text) returns boolean language sql as 'select evil.refuse()';
    create function evil.eq(bigint, bigint) returns boolean language sql as 'select evil.refuse()';
    create function evil.eq(timestamptz, timestamptz) returns boolean language sql
    as 'select evil.refuse()';
    create function evil.band(integer, integer) returns integer language sql as 'select 1 / 0';
    create function evil.neg(bigint) returns bigint language sql as 'select 1 / 0';
    create operator evil.= (function = evil.eq, leftarg = varchar, rightarg = varchar);
    create operator evil.= (function = evil.eq, leftarg = varchar, rightarg = text);
    create operator evil.= (function = evil.eq, leftarg = text, rightarg = text);
    create operator evil.= (function = evil.eq, leftarg = bigint, rightarg = bigint);
    create operator evil.<> (function = evil.eq, leftarg = varchar, rightarg = varchar);
    create operator evil.<> (function = evil.eq, leftarg = varchar, rightarg = text);
    create operator evil.<> (function = evil.eq, leftarg = text, rightarg = text);
    create operator evil.<> (function = evil.eq, leftarg = timestamptz, rightarg = timestamptz);
    create operator evil.& (function = evil.band, leftarg = integer, rightarg = integer);
    create operator evil.- (function = evil.neg, rightarg = bigint);
    create function evil.hashtext(text) returns integer language sql as 'select 1 / 0';
    create function evil.hashtext(varchar) returns integer language sql as 'select 1 / 0';
    create function evil.now() returns timestamptz language sql as 'select null::timestamptz';
    create function evil.count() returns bigint language sql as 'select 1 / 0::bigint';
    create function evil.pg_notify(text, text) returns void language sql as 'select evil.refuse()';
    create function evil.pg_try_advisory_xact_lock_shared(integer, integer) returns boolean
    language sql as 'select evil.refuse()';
    create function evil.current_setting(text, boolean) returns text
    language sql as 'select evil.refuse()::text';
    create domain evil.int2 as smallint check (value < 0);
    create table evil.app_outbox_queue (nothing integer);
    create table evil.app_outbox_failed (nothing integer);
    create table evil.app_outbox_counter (nothing integer);
"""


@pytest.fixture
def writer_name(conn: Conn) -> Iterator[str]:
    """A role that may do with the outbox table what it likes, and has no right to any other."""
    name = f"writer_{conn.info.backend_pid}_{next(_numbers)}"
    role = sql.Identifier(name)
    conn.execute(sql.SQL("create role {}").format(role))
    conn.execute(
        sql.SQL("grant select, insert, update, delete, truncate on app_outbox to {}").format(role)
    )
    conn.execute(sql.SQL("grant usage on sequence app_outbox_outbox_id_seq to {}").format(role))
    yield name
    conn.execute(sql.SQL("drop owned by {} cascade").format(role))
    conn.execute(sql.SQL("drop role {}").format(role))


@pytest.fixture
def writer(connect: OpenConnection, writer_name: str) -> Iterator[Conn]:
    writer = connect()
    writer.execute(sql.SQL("set role {}").format(sql.Identifier(writer_name)))
    yield writer
    writer.close()


def do_everything(writer: Conn, table: str) -> None:
    """Make each trigger fire, on every path through it."""
    for status in ("PENDING", "PROCESSING", "SENT", "FAILED", "CANCELLED"):
        writer.execute(
            f"insert into {table} (message_key, event_type, destination, status, ordering_key) "
            "select %s || n, 't', 'orders', %s, case when n > 2 then 'k' end "
            "from pg_catalog.generate_series(1, 4) as n",
            [f"{status}-{next(_numbers)}-", status],
        )
    for status in ("CANCELLED", "FAILED", "PENDING", "SENT", "PENDING"):
        writer.execute(f"update {table} set status = %s", [status])
    writer.execute(f"update {table} set next_run_at = next_run_at + '1 s'::pg_catalog.interval")
    writer.execute(f"update {table} set destination = 'invoices', ordering_key = 'j'")
    writer.execute(f"update {table} set status = 'SENT'")
    writer.execute(f"delete from {table}")


def test_a_writer_without_rights_on_the_side_tables_can_do_everything(
    conn: Conn, writer: Conn
) -> None:
    do_everything(writer, "public.app_outbox")
    assert faults(conn) == {}
    insert(writer, 3)
    assert faults(conn) == {}
    for table in ("queue", "failed", "counter", "claim"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            writer.execute(f"select from app_outbox_{table}")
    writer.execute("truncate app_outbox")
    assert count(conn, "app_outbox_queue") == 0


@pytest.mark.parametrize(
    "search_path",
    [
        "evil, pg_catalog",
        "evil, pg_temp, pg_catalog, public",
        "pg_temp, evil",
        "''",
        "evil, public",
    ],
)
def test_a_hostile_search_path_changes_nothing(
    conn: Conn, writer_name: str, writer: Conn, search_path: str
) -> None:
    conn.execute("drop schema if exists evil cascade")
    conn.execute(_SHADOWS.replace("{writer}", f'"{writer_name}"'))
    conn.execute("grant execute on all functions in schema evil to public")
    conn.execute("grant select, insert, delete on all tables in schema evil to public")
    writer.execute(f"set search_path = {search_path}")
    if "evil, p" in search_path:
        with pytest.raises(psycopg.Error):
            writer.execute("select 'a'::varchar = 'b'::varchar")
    do_everything(writer, "public.app_outbox")
    assert faults(conn) == {}
    conn.execute("drop schema evil cascade")


def test_temporary_tables_of_the_same_names_are_not_written_to(conn: Conn, writer: Conn) -> None:
    for table in ("queue", "failed", "counter"):
        writer.execute(f"create temporary table app_outbox_{table} (nothing integer)")
    do_everything(writer, "public.app_outbox")
    insert(writer, 2)
    assert faults(conn) == {}


def test_a_hostile_search_path_does_not_keep_a_sleeping_relay_asleep(
    conn: Conn, writer: Conn, desk: Desk
) -> None:
    conn.execute("drop schema if exists evil cascade")
    conn.execute(_SHADOWS.replace("{writer}", "public"))
    conn.execute("grant execute on all functions in schema evil to public")
    desk.claimer.listen(desk.session)
    assert desk.claimer._gate.close_gate()
    writer.execute("set search_path = evil, pg_catalog")
    writer.execute(
        "insert into public.app_outbox (message_key, event_type, destination) "
        "values ('x', 't', 'd')"
    )
    assert wait_until(
        lambda: desk.claimer._gate.wait(1.0, desk.claimer.stop, desk.admission.changed),
        "the relay is woken",
    )
    desk.claimer._gate.open_gate()
    conn.execute("drop schema evil cascade")


def test_the_trigger_functions_cannot_be_hung_on_another_table(conn: Conn, writer: Conn) -> None:
    insert(conn, 2)
    writer.execute(
        "create temporary table bait (outbox_id bigint, destination text, event_type text, "
        "status text, last_error_code text, next_run_at timestamptz, ordering_key text)"
    )
    for function, event in {
        "app_outbox_after_insert": "after insert on bait referencing new table as new_rows "
        "for each statement",
        "app_outbox_after_insert_settled": "after insert on bait for each row",
        "app_outbox_after_update": "after update on bait for each row",
        "app_outbox_after_delete": "after delete on bait referencing old table as old_rows "
        "for each statement",
        "app_outbox_after_truncate": "after truncate on bait for each statement",
        "app_outbox_audit_link": "after insert on bait for each row",
        "app_outbox_control_audit": "after insert on bait for each row",
    }.items():
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            writer.execute(f"create trigger t {event} execute function public.{function}()")
    assert count(conn, "app_outbox_queue") == 2


def test_functions_with_the_owners_rights_are_few_and_name_everything_in_full(
    conn: Conn,
) -> None:
    definers = conn.execute(
        "select p.proname, p.prosrc, p.proacl::text, p.proconfig from pg_proc as p "
        "where p.pronamespace = 'public'::regnamespace and p.prosecdef order by 1"
    ).fetchall()
    assert [name for name, _, _, _ in definers] == [
        "app_outbox_act",
        "app_outbox_after_delete",
        "app_outbox_after_edit",
        "app_outbox_after_insert",
        "app_outbox_after_insert_settled",
        "app_outbox_after_truncate",
        "app_outbox_after_update",
        "app_outbox_audit_link",
        "app_outbox_control_audit",
        "app_outbox_prune",
        "app_outbox_prune_audit",
    ]
    for name, body, rights, options in definers:
        assert rights is not None, f"{name}: everybody may call it"
        assert "{=X/" not in rights, name
        assert ",=X/" not in rights, name
        if options is not None:
            # Off the way of a message a path of its own may cost what it costs.
            assert options == ["search_path=pg_catalog, pg_temp"], name
            continue
        words = body.replace("operator(pg_catalog.", "").replace("pg_catalog.", "qualified_")
        for operator in (" = ", " <> ", " & ", " - "):
            # `set column = value` is syntax, not an operator.
            lines = [
                line
                for line in words.splitlines()
                if "= excluded." not in line and not line.strip().startswith("set ")
            ]
            assert operator not in "\n".join(lines), (name, operator)
        for function in ("hashtext(", "count(", "now(", "pg_notify(", "current_setting("):
            assert words.count(function) == words.count(f"qualified_{function}"), (name, function)
