"""Each role of roles.sql can do what its part does, and nothing else."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import ANY

import psycopg
import pytest

import bridge
from bridge.database.migrations import Migrator
from bridge.database.schema_files import read_schema_file, schema_directory
from bridge.database.statements import load
from bridge.database.template import render_script
from bridge.enqueue import Message, enqueue, enqueue_many
from bridge.errors import EnqueueError
from bridge.local.postgres_programs import PostgresPrograms
from bridge.monitor import snapshot
from bridge.switches import list_switches, pause, quiet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.postgres import PostgresServer

Connection = psycopg.Connection[tuple[Any, ...]]

SCHEMA = "My Schema"
ROLES = ("outbox_writer", "outbox_relay", "outbox_operator", "outbox_reader")
PACKAGE = Path(bridge.__file__).parent
QUERIES = sorted(path.stem for path in (PACKAGE / "database" / "queries").glob("*.sql"))

# What runs with which role: the statements named in these files.
PARTS = {
    "outbox_writer": ["enqueue_steps.py"],
    "outbox_relay": ["relay", "monitor.py"],
    "outbox_operator": [
        "monitor.py",
        "inspection.py",
        "held_keys.py",
        "switches.py",
        "operations",
        "doctor",
    ],
    "outbox_reader": ["monitor.py", "inspection.py", "held_keys.py", "doctor"],
}

# Privileges on whole tables: S select, I insert, U update, D delete (never truncate or trigger);
# lower case: only on some columns.
EXPECTED = {
    "app_outbox": {"writer": "Si", "relay": "Su", "operator": "S", "reader": "S"},
    "app_outbox_queue": {"relay": "SIUD", "operator": "S", "reader": "S"},
    "app_outbox_failed": {"relay": "SIUD", "operator": "S", "reader": "S"},
    "app_outbox_counter": {"relay": "SIUD", "operator": "S", "reader": "S"},
    "app_outbox_claim": {"relay": "SIUD", "operator": "S", "reader": "S"},
    "app_outbox_relay": {"relay": "SIUD", "operator": "S", "reader": "S"},
    "app_outbox_lane": {"relay": "SIUD", "operator": "S", "reader": "S"},
    "app_outbox_hold": {"relay": "SIUD", "operator": "S", "reader": "S"},
    "app_outbox_suspect": {"relay": "SIUD", "operator": "S", "reader": "S"},
    "app_outbox_control": {"relay": "S", "operator": "SIUD", "reader": "S"},
    "app_outbox_rate": {"relay": "SIU", "operator": "S", "reader": "S"},
    "app_outbox_audit": {"operator": "S", "reader": "S"},
    "app_outbox_audit_link": {"operator": "S", "reader": "S"},
    "app_outbox_audit_head": {"operator": "S", "reader": "S"},
    "app_outbox_archive": {"operator": "S", "reader": "S"},
    "app_outbox_migration": {"relay": "S", "operator": "S", "reader": "S"},
    **{
        view: {"relay": "S", "operator": "S", "reader": "S"}
        for view in (
            "outbox_unsent",
            "outbox_by_destination",
            "outbox_by_status",
            "outbox_oldest_unsent",
            "outbox_near_retry_limit",
            "outbox_by_error",
            "outbox_relays",
            "outbox_breakers",
            "outbox_stuck",
            "outbox_held_keys",
            "outbox_throughput_by_destination",
            "outbox_throughput",
        )
    },
}
DELIVERY = {
    "status",
    "retry_count",
    "next_run_at",
    "last_error_code",
    "last_error_msg",
    "claim_count",
    "claim_id",
    "locked_by",
    "locked_at",
    "sent_partition",
    "sent_offset",
    "sent_topic",
    "sent_at",
    "updated_at",
}
CONTENT = {
    "outbox_id",
    "message_key",
    "event_type",
    "destination",
    "ordering_key",
    "content_type",
    "created_at",
    "headers",
    "payload_json",
    "payload_bytes",
    "max_retry_count",
    "next_run_at",
}


@pytest.fixture(scope="module")
def granted(postgres: PostgresServer) -> Iterator[Connection]:
    """A database whose outbox has the roles; run twice, as after each migration."""
    url = postgres.create_database()
    with psycopg.connect(url, autocommit=True) as conn:
        Migrator(conn, SCHEMA).up()
        for _ in range(2):
            conn.execute(render_script(read_schema_file("roles.sql"), SCHEMA).encode())
        conn.execute("create schema business")
        yield conn
    postgres.drop_database(url)


@pytest.fixture
def acting(granted: Connection) -> Iterator[Connection]:
    """The same connection; the role that a test sets is taken off, its changes are rolled back."""
    yield granted
    granted.execute("reset role")
    granted.execute('truncate "My Schema".app_outbox')


def test_tables_are_granted_exactly(granted: Connection) -> None:
    rows = granted.execute(
        """
        select c.relname, r.rolname, p.privilege,
            has_table_privilege(r.oid, c.oid, p.privilege),
            has_any_column_privilege(r.oid, c.oid, p.privilege)
        from pg_class c, pg_roles r,
            unnest(array['SELECT', 'INSERT', 'UPDATE', 'REFERENCES']) as p (privilege)
        where c.relnamespace = to_regnamespace('"My Schema"') and c.relkind in ('r', 'v')
            and r.rolname = any(%s)
        union all
        select c.relname, r.rolname, p.privilege,
            has_table_privilege(r.oid, c.oid, p.privilege), false
        from pg_class c, pg_roles r, unnest(array['DELETE', 'TRUNCATE', 'TRIGGER']) as p (privilege)
        where c.relnamespace = to_regnamespace('"My Schema"') and c.relkind in ('r', 'v')
            and r.rolname = any(%s)
        """,
        [list(ROLES), list(ROLES)],
    ).fetchall()
    found: dict[str, dict[str, str]] = {}
    for table, role, privilege, whole, some in rows:
        letter = {"REFERENCES": "R", "TRUNCATE": "T", "TRIGGER": "X"}.get(privilege, privilege[0])
        if whole or some:
            role_letters = found.setdefault(table, {})
            short = role.removeprefix("outbox_")
            role_letters[short] = role_letters.get(short, "") + (
                letter if whole else letter.lower()
            )
    assert {
        table: {role: "".join(sorted(letters)) for role, letters in roles.items()}
        for table, roles in found.items()
    } == {
        table: {role: "".join(sorted(letters)) for role, letters in roles.items()}
        for table, roles in EXPECTED.items()
    }


@pytest.mark.parametrize(
    ("role", "privilege", "columns"),
    [
        ("outbox_writer", "INSERT", CONTENT),
        ("outbox_relay", "UPDATE", DELIVERY),
        ("outbox_operator", "UPDATE", set()),
    ],
)
def test_columns_are_granted_exactly(
    granted: Connection, role: str, privilege: str, columns: set[str]
) -> None:
    rows = granted.execute(
        """
        select attname from pg_attribute
        where attrelid = '"My Schema".app_outbox'::regclass and attnum > 0
        and has_column_privilege(%s, attrelid, attnum, %s)
        """,
        [role, privilege],
    ).fetchall()
    assert {row[0] for row in rows} == columns


def test_roles_own_nothing_and_cannot_create(granted: Connection) -> None:
    rows = granted.execute(
        """
        select rolname, rolcanlogin, rolsuper, rolcreaterole, rolcreatedb, rolbypassrls,
            rolreplication, has_schema_privilege(oid, 'My Schema', 'create'),
            has_schema_privilege(oid, 'My Schema', 'usage'),
            has_schema_privilege(oid, 'business', 'usage')
        from pg_roles where rolname = any(%s)
        """,
        [list(ROLES)],
    ).fetchall()
    assert {row[0] for row in rows} == set(ROLES)
    assert {row[1:] for row in rows} == {(*[False] * 7, True, False)}


def test_only_the_relay_sees_other_sessions(granted: Connection) -> None:
    rows = granted.execute(
        "select rolname from pg_roles"
        " where rolname = any(%s) and pg_has_role(oid, 'pg_read_all_stats', 'usage')",
        [list(ROLES)],
    ).fetchall()
    assert rows == [("outbox_relay",)]


@pytest.mark.parametrize("role", ROLES)
def test_each_part_runs_its_statements(acting: Connection, role: str) -> None:
    """Every statement that the part's code names passes the server's check of privileges."""
    names = [name for name in QUERIES if name in _named_by(PARTS[role])]
    assert names
    acting.execute(f"set role {role}".encode())
    for name in names:
        _check(acting, name)


def test_no_other_part_runs_the_relays_statements(acting: Connection) -> None:
    for role in ("outbox_writer", "outbox_operator", "outbox_reader"):
        acting.execute(f"set role {role}".encode())
        for name in ("claim_rows", "settle_sent", "rescue_claim", "beat_relay", "reconcile_queue"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                _check(acting, name)


def _named_by(parts: list[str]) -> set[str]:
    names: set[str] = set()
    for part in parts:
        path = PACKAGE / part
        for file in path.rglob("*.py") if path.is_dir() else [path]:
            names.update(re.findall(r'"([a-z_]+)"', file.read_text(encoding="utf-8")))
    return names


def _check(conn: Connection, name: str) -> None:
    statement = load(name, SCHEMA)
    parameters = dict.fromkeys(re.findall(r"%\((\w+)\)s", statement.decode()))
    if not statement.startswith((b"lock", b"notify", b"listen")):
        statement = b"explain " + statement
    conn.execute("begin")
    try:
        conn.execute(statement, parameters)
    finally:
        conn.execute("rollback")


@pytest.mark.parametrize("role", ["outbox_relay", "outbox_operator", "outbox_reader"])
def test_whoever_counts_the_backlog_may(acting: Connection, role: str) -> None:
    acting.execute('set search_path = "My Schema"')
    acting.execute("select outbox_enqueue('k', 'e', 'd', '1')")
    acting.execute(f"set role {role}".encode())
    acting.execute("reset search_path")
    assert snapshot(acting, SCHEMA).due == 1
    assert acting.execute(load("count_holds_by_destination", SCHEMA)).fetchall() == []
    acting.execute("reset role")


def test_operator_and_reader_see_the_switches(acting: Connection) -> None:
    for role in ("outbox_operator", "outbox_reader"):
        acting.execute(f"set role {role}".encode())
        assert list_switches(acting, SCHEMA) == []
    acting.execute("reset role")


@pytest.mark.parametrize("role", ["outbox_writer", "outbox_relay", "outbox_reader"])
def test_only_the_operator_sets_switches(acting: Connection, role: str) -> None:
    acting.execute(f"set role {role}".encode())
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        pause(acting, reason="a test", actor="me", schema=SCHEMA)


def test_the_relay_reads_switches_and_takes_tokens(acting: Connection) -> None:
    acting.execute("set role outbox_operator")
    quiet(acting, window="22:00-23:00 UTC", reason="a test", actor="me", schema=SCHEMA)
    acting.execute("set role outbox_relay")
    assert len(acting.execute(load("read_switches", SCHEMA), {"at": None}).fetchall()) == 1
    tokens = {"destination": "*", "wanted": 5, "rate": 0.001, "burst": 3.0}
    for granted in (3, 0):
        assert acting.execute(load("take_tokens", SCHEMA), tokens).fetchone() == (granted, ANY)
    acting.execute("reset role")
    acting.execute('delete from "My Schema".app_outbox_control')


def test_writer_enqueues_in_every_way(acting: Connection) -> None:
    acting.execute("set role outbox_writer")
    with acting.transaction():
        one = enqueue(
            acting, message_key="a", event_type="e", destination="d", payload={}, schema=SCHEMA
        )
        again = enqueue(
            acting, message_key="a", event_type="e", destination="d", payload={}, schema=SCHEMA
        )
        assert (again.outbox_id, again.created) == (one.outbox_id, False)
        messages = [
            Message(message_key=k, event_type="e", destination="d", payload={}) for k in "ab"
        ]
        assert [r.created for r in enqueue_many(acting, messages, schema=SCHEMA)] == [False, True]
        acting.execute("select \"My Schema\".outbox_enqueue('c', 'e', 'd', '1')")
        acting.execute(
            'insert into "My Schema".app_outbox (message_key, event_type, destination)'
            " values ('d', 'e', 'd')"
        )
        with acting.cursor().copy(
            'copy "My Schema".app_outbox (message_key, event_type, destination) from stdin'
        ) as copy:
            copy.write_row(("e", "e", "d"))
    acting.execute("reset role")
    queued = acting.execute('select count(*) from "My Schema".app_outbox_queue').fetchone()
    assert queued == (5,)


_FORGED = (
    "(action_name, reason, changed_by, source) values ('cancel', 'why', 'somebody else', 'sql')"
)


@pytest.mark.parametrize(
    ("role", "statement"),
    [
        ("outbox_writer", "update app_outbox set payload_json = '1'"),
        ("outbox_writer", "update app_outbox set status = 'CANCELLED'"),
        ("outbox_writer", "delete from app_outbox"),
        ("outbox_writer", "truncate app_outbox"),
        (
            "outbox_writer",
            "insert into app_outbox (message_key, destination, status) values ('x', 'd', 'SENT')",
        ),
        ("outbox_writer", "insert into app_outbox_queue values (1, 'd', now())"),
        ("outbox_writer", "table app_outbox_audit"),
        ("outbox_relay", "insert into app_outbox (message_key) values ('x')"),
        ("outbox_relay", "update app_outbox set payload_json = '1'"),
        ("outbox_relay", "update app_outbox set message_key = 'x'"),
        ("outbox_relay", "update app_outbox set destination = 'x'"),
        ("outbox_relay", "delete from app_outbox"),
        ("outbox_relay", "update app_outbox_control set paused = true"),
        ("outbox_relay", "delete from app_outbox_rate"),
        ("outbox_writer", "table app_outbox_control"),
        ("outbox_operator", "update app_outbox_rate set tokens = 0"),
        ("outbox_reader", "update app_outbox_control set paused = true"),
        ("outbox_relay", "table app_outbox_audit"),
        ("outbox_operator", "insert into app_outbox (message_key) values ('x')"),
        ("outbox_operator", "update app_outbox set payload_json = '1'"),
        ("outbox_operator", "update app_outbox set status = 'CANCELLED'"),
        ("outbox_operator", "update app_outbox_hold set released_at = now()"),
        ("outbox_operator", "select * from app_outbox for update"),
        ("outbox_operator", f"insert into app_outbox_audit {_FORGED}"),
        ("outbox_operator", "update app_outbox_audit_head set position = 0"),
        ("outbox_relay", f"insert into app_outbox_audit {_FORGED}"),
        ("outbox_relay", "select outbox_retry_failed(1, 'a test')"),
        ("outbox_writer", "select outbox_cancel_message(1, 'a test')"),
        ("outbox_reader", "select app_outbox_act('cancel', '{1}', 'a test')"),
        ("outbox_operator", "select app_outbox_audit_state(1, 'edit', true, true)"),
        ("outbox_operator", "update app_outbox set message_key = 'x'"),
        ("outbox_operator", "delete from app_outbox"),
        ("outbox_operator", "delete from app_outbox_hold"),
        ("outbox_operator", "update app_outbox_hold set boundary = 0"),
        ("outbox_operator", "update app_outbox_audit set reason = 'x'"),
        ("outbox_operator", "delete from app_outbox_audit"),
        ("outbox_reader", "update app_outbox set status = 'CANCELLED'"),
        ("outbox_reader", "insert into app_outbox (message_key) values ('x')"),
        ("outbox_reader", "select * from app_outbox for update"),
        ("outbox_reader", "insert into app_outbox_control (destination) values ('x')"),
        ("outbox_reader", "create table mine (id integer)"),
        ("outbox_operator", "alter table app_outbox disable trigger all"),
        ("outbox_relay", "drop table app_outbox"),
    ],
)
def test_everything_else_is_refused(acting: Connection, role: str, statement: str) -> None:
    acting.execute('set search_path = "My Schema"')
    acting.execute(f"set role {role}".encode())
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        acting.execute(statement.encode())


def test_operator_moves_a_row_on_and_leaves_a_trace(acting: Connection) -> None:
    acting.execute('set search_path = "My Schema"')
    row = acting.execute("select outbox_id from outbox_enqueue('k', 'e', 'd', '1')").fetchone()
    assert row is not None
    acting.execute("set role outbox_operator")
    acting.execute("select outbox_cancel_message(%s, 'a test')", row)
    left = acting.execute(
        "select action_name, reason, changed_by, database_user, source from app_outbox_audit "
        "where outbox_id = %s",
        row,
    ).fetchall()
    me = acting.info.user
    assert left == [("cancel", "a test", me, me, "sql")]
    acting.execute(
        "insert into app_outbox_control (destination, paused, quiet_hours, reason)"
        " values ('d', true, '23:00-06:00 Asia/Tokyo', 'a test')"
    )
    acting.execute("delete from app_outbox_control")


def test_role_without_grants_is_told_which_one_it_needs(acting: Connection) -> None:
    acting.execute("set role outbox_reader")
    with acting.transaction(), pytest.raises(EnqueueError, match="grant it outbox_writer"):
        enqueue(acting, message_key="a", event_type="e", destination="d", payload={}, schema=SCHEMA)


def test_foreign_function_owner_cannot_reach_the_side_tables(acting: Connection) -> None:
    """A trigger function of ours on somebody's own table would write with the owner's rights."""
    acting.execute("grant create, usage on schema business to outbox_writer")
    acting.execute("set role outbox_writer")
    acting.execute('create table business.own (like "My Schema".app_outbox)')
    for function in ("app_outbox_after_insert", "app_outbox_after_update"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            acting.execute(
                "create trigger t after insert on business.own for each row"
                f' execute function "My Schema".{function}()'.encode()
            )
    acting.execute("drop table business.own")


def test_script_runs_in_psql(granted: Connection, postgres: PostgresServer) -> None:
    done = subprocess.run(
        [
            PostgresPrograms.embedded().program("psql"),
            "-X",
            "-q",
            "-v",
            "ON_ERROR_STOP=1",
            "-v",
            f"schema={SCHEMA}",
            "-f",
            str(schema_directory() / "roles.sql"),
            postgres.database_url(granted.info.dbname),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
