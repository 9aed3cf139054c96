"""`outbox_enqueue`: the same rules for every language that can run SQL."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from bridge import enqueue
from bridge.message import RESERVED_HEADERS
from tests.enqueue.messages import keys, queued

Connection = psycopg.Connection[tuple[Any, ...]]


def call(conn: Connection, arguments: str, *values: Any) -> tuple[int, bool]:
    row = conn.execute(
        f"select outbox_id, created from outbox_enqueue({arguments})".encode(), values or None
    ).fetchone()
    assert row is not None
    return row[0], row[1]


def test_created_then_absorbed(conn: Connection) -> None:
    first, created = call(conn, "'k', 'e', 'd', '{\"a\": 1}'")
    assert created
    assert call(conn, "'k', 'e', 'd', '{\"a\": 2}'") == (first, False)
    assert keys(conn) == queued(conn) == ["k"]


def test_every_argument_lands_in_its_column(conn: Connection) -> None:
    call(
        conn,
        "message_key => 'k', event_type => 'e', destination => 'd', payload => ' {\"a\" : 1} ',"
        " headers => '{\"h\": \"x\"}', ordering_key => 'o', not_before => '2031-01-01 00:00+00'",
    )
    row = conn.execute(
        "select event_type, destination, payload_json::text, headers, ordering_key,"
        " next_run_at = '2031-01-01 00:00+00', max_retry_count, status from app_outbox"
    ).fetchone()
    assert row == ("e", "d", ' {"a" : 1} ', {"h": "x"}, "o", True, 5, "PENDING")


def test_left_out_arguments_are_the_columns_defaults(conn: Connection) -> None:
    call(conn, "'k', 'e', 'd', null")
    row = conn.execute(
        "select payload_json, payload_bytes, headers, ordering_key, next_run_at = now()"
        " from app_outbox"
    ).fetchone()
    assert row == (None, None, {}, None, True)
    call(conn, "'k2', 'e', 'd', 'null', null")
    rows = conn.execute(
        "select payload_json::text, headers from app_outbox where message_key = 'k2'"
    ).fetchall()
    assert rows == [("null", {})]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("null, 'e', 'd', '1'", "message_key is empty"),
        ("'', 'e', 'd', '1'", "message_key is empty"),
        ("repeat('x', 201), 'e', 'd', '1'", "message_key has 201 characters"),
        ("'k', null, 'd', '1'", "event_type is empty"),
        ("'k', repeat('x', 101), 'd', '1'", "event_type has 101 characters"),
        ("'k', 'e', '', '1'", "destination is empty"),
        ("'k', 'e', repeat('x', 201), '1'", "destination has 201 characters"),
        ("'k', 'e', 'd', '1', ordering_key => ''", "ordering_key is empty"),
        ("'k', 'e', 'd', '1', ordering_key => repeat('x', 201)", "ordering_key has 201"),
        ("'k', 'e', 'd', '1', not_before => 'infinity'", "not_before is infinite"),
        ("'k', 'e', 'd', '1', on_duplicate => 'ignore'", "on_duplicate is 'ignore'"),
        ("'k', 'e', 'd', '1', on_duplicate => null", "on_duplicate is NULL"),
        ("'k', 'e', 'd', '1', '[]'", "headers are not a JSON object"),
        ("'k', 'e', 'd', '1', 'null'", "headers are not a JSON object"),
        ("'k', 'e', 'd', '1', '{\"a\": 1}'", "header 'a' is not a string"),
        ("'k', 'e', 'd', '1', '{\"a\": null}'", "header 'a' is not a string"),
        ("'k', 'e', 'd', '1', '{\"\": \"x\"}'", "a header has no name"),
        ("'k', 'e', 'd', to_json(repeat('x', 999999))", "payload has 1000001 bytes"),
        *(
            (f"'k', 'e', 'd', '1', '{{\"ok\": \"1\", \"{name.upper()}\": \"x\"}}'", "by the relay")
            for name in sorted(RESERVED_HEADERS)
        ),
    ],
)
def test_bad_argument_is_refused_with_a_hint(
    conn: Connection, arguments: str, message: str
) -> None:
    with pytest.raises(psycopg.Error, match=message) as caught, conn.transaction():
        call(conn, arguments)
    assert caught.value.sqlstate == "OB001"
    assert caught.value.diag.message_hint
    assert keys(conn) == []


def test_longest_names_and_largest_payload_are_taken(conn: Connection) -> None:
    arguments = "repeat('é', 200), repeat('é', 100), repeat('é', 200), to_json(repeat('x', 999998))"
    assert call(conn, arguments + ", ordering_key => repeat('é', 200)")[1]


def test_payload_limit_is_a_setting(conn: Connection) -> None:
    conn.execute("set local outbox_bridge.max_payload_bytes = '10'")
    with pytest.raises(psycopg.Error, match="payload has 11 bytes"), conn.transaction():
        call(conn, "'k', 'e', 'd', '\"123456789\"'")
    assert call(conn, "'k', 'e', 'd', '\"12345678\"'")[1]


@pytest.mark.parametrize("policy", ["error", "strict"])
@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ("'k', 'e', 'other', '1'", "destination"),
        ("'k', 'other', 'd', '1'", "event_type"),
        ("'k', 'e', 'd', '1', ordering_key => 'o'", "ordering_key"),
    ],
)
def test_careless_key_is_refused(conn: Connection, policy: str, arguments: str, field: str) -> None:
    first, _ = call(conn, "'k', 'e', 'd', '1'")
    complaint = f"'k' already .* its {field} differs"
    with pytest.raises(psycopg.Error, match=complaint) as caught, conn.transaction():
        call(conn, f"{arguments}, on_duplicate => '{policy}'")
    assert caught.value.sqlstate == "OB002"
    assert call(conn, f"{arguments}, on_duplicate => 'absorb'") == (first, False)


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ('{"a": 1, "b": 2}', '{"b":2.0,"a":1}', True),
        ('{"a": 1}', '{"a": 2}', False),
        ('{"a": 1, "a": 2}', '{"a": 2}', True),
        ("true", "1", False),
        ('"\\u0000"', '"\\u0000"', True),
        ('"\\u0000"', ' "\\u0000"', False),
        ("1e999999", "2e999999", False),
        ("null", None, False),
        (None, None, True),
    ],
)
def test_strict_compares_the_payload_as_json(
    conn: Connection, left: str | None, right: str | None, *, same: bool
) -> None:
    first, _ = call(conn, "'k', 'e', 'd', %s, on_duplicate => 'strict'", left)
    if same:
        assert call(conn, "'k', 'e', 'd', %s, on_duplicate => 'strict'", right) == (first, False)
        return
    with pytest.raises(psycopg.Error, match="its payload differs"), conn.transaction():
        call(conn, "'k', 'e', 'd', %s, on_duplicate => 'strict'", right)
    assert call(conn, "'k', 'e', 'd', %s", right) == (first, False)


def test_strict_knows_raw_payloads_are_other_ones(conn: Connection) -> None:
    conn.execute(
        "insert into app_outbox (message_key, event_type, destination, payload_bytes)"
        " values ('k', 'e', 'd', 'x')"
    )
    with pytest.raises(psycopg.Error, match="its payload differs"):
        call(conn, "'k', 'e', 'd', null, on_duplicate => 'strict'")


def test_rolls_back_with_the_business_data(conn: Connection, observer: Connection) -> None:
    call(conn, "'k', 'e', 'd', '1'")
    conn.rollback()
    assert keys(observer) == []


def test_python_and_sql_absorb_each_other(conn: Connection) -> None:
    one = enqueue(conn, message_key="k", event_type="e", destination="d", payload={"a": 1})
    assert call(conn, "'k', 'e', 'd', '{\"a\": 1}', on_duplicate => 'strict'") == (
        one.outbox_id,
        False,
    )
    other, _ = call(conn, "'k2', 'e', 'd', '{\"a\": 1}'")
    two = enqueue(
        conn,
        message_key="k2",
        event_type="e",
        destination="d",
        payload={"a": 1},
        on_duplicate="strict",
    )
    assert (two.outbox_id, two.created, two.differs) == (other, False, False)


def test_works_in_triggers_and_functions_of_the_application(conn: Connection) -> None:
    """A common way to enqueue without touching the application's code."""
    conn.execute("create temporary table orders (id integer primary key, total numeric)")
    conn.execute(
        """
        create function pg_temp.announce() returns trigger language plpgsql as $$
        begin
            perform public.outbox_enqueue(
                'order-' || new.id, 'order.created', 'orders', to_json(new)
            );
            return null;
        end
        $$
        """
    )
    conn.execute(
        "create trigger announce after insert on orders"
        " for each row execute function pg_temp.announce()"
    )
    conn.execute("insert into orders values (1, 9.90), (2, 8)")
    assert keys(conn) == ["order-1", "order-2"]
