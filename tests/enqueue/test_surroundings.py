"""Plain SQL, COPY, foreign search paths, encodings, publications, trace context."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from opentelemetry import baggage, trace
from opentelemetry.context import attach, detach
from opentelemetry.sdk.trace import TracerProvider

from bridge import InvalidMessageError, Message, enqueue, enqueue_many
from bridge.database.migrations import Migrator
from tests.enqueue.messages import fields, keys, queued

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.postgres import PostgresServer

Connection = psycopg.Connection[tuple[Any, ...]]


def test_bare_insert_is_enough(conn: Connection) -> None:
    conn.execute(
        "insert into app_outbox (message_key, event_type, destination, payload_json)"
        " select 'k-' || n, 'e', 'd', to_json(n) from generate_series(1, 3) as n"
    )
    assert queued(conn) == ["k-1", "k-2", "k-3"]


def test_insert_on_conflict_absorbs(conn: Connection) -> None:
    for key in ("a", "a", "b"):
        conn.execute(
            "insert into app_outbox (message_key, event_type, destination) values (%s, 'e', 'd')"
            " on conflict (message_key) do nothing",
            [key],
        )
    conn.execute(
        "insert into app_outbox (message_key, event_type, destination) values ('b', 'e', 'd')"
        ' on conflict (message_key) do update set headers = \'{"again": "1"}\''
    )
    assert keys(conn) == queued(conn) == ["a", "b"]


def test_copy_into_the_outbox(conn: Connection) -> None:
    with conn.cursor().copy(
        "copy app_outbox (message_key, event_type, destination, payload_json) from stdin"
    ) as copy:
        for number in range(1000):
            copy.write_row((f"k-{number:04d}", "e", "d", f'{{"n": {number}}}'))
    assert len(queued(conn)) == 1000


@pytest.mark.parametrize(
    "statement",
    [
        "values ('', 'e', 'd', '1', '{}')",
        "values ('k', '', 'd', '1', '{}')",
        "values ('k', 'e', '', '1', '{}')",
        "values ('k', 'e', 'd', '1', '[]')",
        "values (null, 'e', 'd', '1', '{}')",
        "values ('k', 'e', 'd', 'not json', '{}')",
        "values (repeat('x', 201), 'e', 'd', '1', '{}')",
    ],
)
def test_table_refuses_what_no_relay_could_send(conn: Connection, statement: str) -> None:
    with pytest.raises((psycopg.IntegrityError, psycopg.DataError)):
        conn.execute(
            "insert into app_outbox (message_key, event_type, destination, payload_json, headers) "
            + statement
        )


@pytest.fixture
def hostile(postgres: PostgresServer) -> Iterator[Connection]:
    """A writer's session whose search_path is full of traps, against an outbox in "My Schema"."""
    url = postgres.create_database()
    with psycopg.connect(url) as conn:
        with psycopg.connect(url, autocommit=True) as owner:
            Migrator(owner, "My Schema").up()
        conn.execute(_TRAPS.encode())
        conn.execute("set search_path = evil, pg_catalog")
        conn.commit()
        yield conn
    postgres.drop_database(url)


_TYPES = (
    "text",
    "varchar",
    "int4",
    "int8",
    "int2",
    "json",
    "jsonb",
    "bool",
    "bytea",
    "timestamptz",
)
_OPERATORS = ("=", "<>", "<", ">", "<=", ">=", "||", "&", "+", "-")
_TRAPS = (
    "create schema evil;\n"
    "create table evil.app_outbox (id int);\n"
    "create table evil.app_outbox_queue (id int);\n"
    + "".join(
        f"create function evil.{name}({arguments}) returns {result} language plpgsql as"
        " $$ begin raise exception 'trapped'; end $$;\n"
        for name, arguments, result in (
            ("now", "", "timestamptz"),
            ("length", "text", "integer"),
            ("lower", "text", "text"),
            ("format", "text, variadic text[]", "text"),
            ("nextval", "regclass", "bigint"),
            ("hashtext", "text", "integer"),
            ("unnest", "anyarray", "setof anyelement"),
            ("jsonb_each", "jsonb, out key text, out value jsonb", "setof record"),
            ("jsonb_typeof", "jsonb", "text"),
            ("octet_length", "text", "integer"),
            ("current_setting", "text, boolean", "text"),
            ("pg_notify", "text, text", "void"),
            ("isfinite", "timestamptz", "boolean"),
            ("convert_to", "text, name", "bytea"),
        )
    )
    + "".join(
        f"create function evil.trap({left}, {right}) returns {result} language plpgsql as"
        " $$ begin raise exception 'trapped'; end $$;\n"
        + "".join(
            f"create operator evil.{operator} (leftarg = {left}, rightarg = {right},"
            " function = evil.trap);\n"
            for operator in _OPERATORS
        )
        for left, right, result in (
            ("text", "text", "boolean"),
            ("varchar", "varchar", "boolean"),
            ("varchar", "text", "boolean"),
            ("integer", "integer", "boolean"),
            ("bigint", "bigint", "boolean"),
            ("integer", "bigint", "boolean"),
            ("bigint", "integer", "boolean"),
            ("jsonb", "jsonb", "boolean"),
            ("timestamptz", "timestamptz", "boolean"),
        )
    )
    + "".join(f"create domain evil.{name} as pg_catalog.{name} check (false);\n" for name in _TYPES)
)


def test_hostile_search_path_neither_breaks_nor_subverts(hostile: Connection) -> None:
    for _ in range(2):
        enqueue(
            hostile,
            **fields("a"),
            payload={"a": 1},
            headers={"h": "x"},
            ordering_key="o",
            schema="My Schema",
            on_duplicate="strict",
        )
        enqueue_many(
            hostile,
            [Message(**fields(key), payload={"a": 1}, ordering_key="o") for key in "zab"],
            schema="My Schema",
            on_duplicate="strict",
        )
        for policy in ("error", "strict", "absorb"):
            hostile.execute(
                "select * from \"My Schema\".outbox_enqueue('f', 'e', 'd', '{\"a\": 1}',"
                " '{\"h\": \"x\"}', 'o', pg_catalog.now(), %s)",
                [policy],
            )
            hostile.execute(
                "select * from \"My Schema\".outbox_enqueue('f', 'e', 'd', '{\"a\":1}',"
                " '{\"h\": \"x\"}', 'o', pg_catalog.now(), %s)",
                [policy],
            )
        for wrong in ("", "x" * 300):
            with pytest.raises(psycopg.Error) as caught, hostile.transaction():
                hostile.execute(
                    "select * from \"My Schema\".outbox_enqueue(%s, 'e', 'd', null)", [wrong]
                )
            assert caught.value.sqlstate == "OB001"
    hostile.execute(
        'insert into "My Schema".app_outbox (message_key, event_type, destination)'
        " values ('plain', 'e', 'd')"
    )
    hostile.execute(
        "update \"My Schema\".app_outbox set status = 'FAILED' where message_key"
        " operator(pg_catalog.=) 'plain'"
    )
    hostile.execute(
        "delete from \"My Schema\".app_outbox where message_key operator(pg_catalog.=) 'plain'"
    )
    hostile.commit()
    hostile.execute("set search_path = pg_catalog")
    rows = hostile.execute(
        'select message_key from "My Schema".app_outbox as o where exists (select from'
        ' "My Schema".app_outbox_queue as q where q.outbox_id = o.outbox_id) order by 1'
    ).fetchall()
    assert rows == [("a",), ("b",), ("f",), ("z",)]


def test_empty_search_path(conn: Connection) -> None:
    conn.execute("set local search_path = ''")
    enqueue(conn, **fields("a"), payload={})
    enqueue_many(conn, [Message(**fields("b"), payload={})])
    conn.execute("select public.outbox_enqueue('c', 'e', 'd', '1')")
    assert keys(conn) == queued(conn) == ["a", "b", "c"]


def test_publication_for_all_tables_stops_nothing(conn: Connection, observer: Connection) -> None:
    observer.execute("create publication everything for all tables")
    try:
        enqueue(conn, **fields("a"), payload={})
        enqueue_many(conn, [Message(**fields("b"), payload={})])
        conn.execute("select outbox_enqueue('c', 'e', 'd', '1')")
        conn.execute("update app_outbox set status = 'FAILED' where message_key = 'a'")
        conn.execute("update app_outbox set status = 'PENDING' where message_key = 'a'")
        conn.execute("update app_outbox set status = 'CANCELLED' where message_key = 'b'")
        for table in ("queue", "failed", "counter", "claim", "relay", "control"):
            conn.execute(f"delete from app_outbox_{table}".encode())
        conn.execute("delete from app_outbox")
        conn.commit()
    finally:
        observer.execute("drop publication everything")


@pytest.mark.parametrize("encoding", ["LATIN1", "WIN1252", "SQL_ASCII", "EUC_JP"])
def test_other_client_encodings(conn: Connection, encoding: str) -> None:
    """What the encoding can carry arrives; what it cannot is refused, and nothing is garbled."""
    enqueue(conn, **fields("known"), payload={"a": "😀"})
    conn.execute(f"set client_encoding to {encoding}".encode())
    fits = {"LATIN1": "é", "WIN1252": "€", "SQL_ASCII": "😀", "EUC_JP": "日"}[encoding]
    assert enqueue(conn, **fields(fits), payload={"a": fits}).created
    again = enqueue_many(conn, [Message(**fields(fits), payload={"a": fits})])
    assert (again[0].created, again[0].differs) == (False, False)
    assert enqueue(conn, **fields("known"), payload={"a": "x"}).differs
    if encoding != "SQL_ASCII":
        for key, payload in (("😀", {}), ("k", {"a": "😀"})):
            with pytest.raises(InvalidMessageError, match="client_encoding"):
                enqueue(conn, **fields(key), payload=payload)
            with pytest.raises(InvalidMessageError, match="client_encoding"):
                enqueue_many(conn, [Message(**fields(key), payload=payload)])
    conn.execute("set client_encoding to UTF8")
    row = conn.execute(
        "select payload_json->>'a' from app_outbox where message_key = %s", [fits]
    ).fetchone()
    assert row == (fits,)


def test_database_in_another_encoding(postgres: PostgresServer) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as admin:
        admin.execute(
            "create database latin1_outbox encoding 'LATIN1' template template0"
            " lc_collate 'C' lc_ctype 'C'"
        )
    url = postgres.database_url("latin1_outbox")
    try:
        with psycopg.connect(url) as conn:
            Migrator(conn).up()
            assert enqueue(conn, **fields("é"), payload={"a": "é"}).created
            assert not enqueue(conn, **fields("é"), payload={"a": "é"}).differs
            with pytest.raises(InvalidMessageError, match="client_encoding"):
                enqueue(conn, **fields("k"), payload={"a": "😀"})
            conn.execute("set client_encoding to UTF8")
            with pytest.raises(InvalidMessageError, match="database's encoding"):
                enqueue(conn, **fields("k"), payload={"a": "😀"})
    finally:
        postgres.drop_database(url)


@pytest.fixture
def span() -> Iterator[trace.Span]:
    tracer = TracerProvider().get_tracer("tests")
    with tracer.start_as_current_span("business") as current:
        yield current


def _headers(conn: Connection) -> dict[str, dict[str, str]]:
    return dict(conn.execute("select message_key, headers from app_outbox").fetchall())


def test_current_span_travels_in_the_headers(conn: Connection, span: trace.Span) -> None:
    token = attach(baggage.set_baggage("tenant", "a b"))
    try:
        enqueue(conn, **fields("a"), payload={})
        enqueue_many(conn, [Message(**fields("b"), payload={}, headers={"own": "1"})])
        enqueue(conn, **fields("c"), payload={}, headers={"TraceParent": "mine"})
    finally:
        detach(token)
    context = span.get_span_context()
    flags = f"{context.trace_flags:02x}"
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags}"
    assert _headers(conn) == {
        "a": {"traceparent": parent, "baggage": "tenant=a+b"},
        "b": {"traceparent": parent, "baggage": "tenant=a+b", "own": "1"},
        "c": {"TraceParent": "mine", "baggage": "tenant=a+b"},
    }


def test_without_a_span_nothing_is_added(conn: Connection) -> None:
    enqueue(conn, **fields("a"), payload={})
    assert _headers(conn) == {"a": {}}


def test_broken_propagator_does_not_break_the_transaction(
    conn: Connection, span: trace.Span, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(carrier: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr("opentelemetry.propagate.inject", broken)
    enqueue(conn, **fields("a"), payload={})
    monkeypatch.setattr(
        "opentelemetry.propagate.inject",
        lambda carrier: carrier.update({"outbox-id": "7", "n": 1, "nul": "\x00", "good": "yes"}),
    )
    enqueue(conn, **fields("b"), payload={})
    assert _headers(conn) == {"a": {}, "b": {"good": "yes"}}


def test_process_without_telemetry_loads_none(outbox_url: str) -> None:
    program = (
        "import sys, psycopg, bridge\n"
        f"with psycopg.connect({outbox_url!r}) as c:\n"
        "    bridge.enqueue(c, message_key='a', event_type='e', destination='d', payload={})\n"
        "loaded = [n for n in sys.modules if n.partition('.')[0] == 'opentelemetry']\n"
        "sys.exit(f'loaded {loaded}' if loaded else 0)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
