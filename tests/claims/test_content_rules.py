"""What a row may not hold is refused, whoever writes it and however."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

from tests.claims.outbox import count, faults, states

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.claims.desk import Desk

Conn = psycopg.Connection[Any]
Values = dict[str, Any]

_GOOD: Values = {
    "message_key": "good",
    "event_type": "order.created",
    "destination": "orders",
    "ordering_key": None,
    "headers": "{}",
    "payload_json": '{"a": 1}',
    "payload_bytes": None,
    "max_retry_count": 5,
    "retry_count": 0,
    "status": "PENDING",
}
_FAULTS: list[tuple[Values, str]] = [
    ({"message_key": ""}, "message_key is empty"),
    ({"event_type": ""}, "event_type is empty"),
    ({"destination": ""}, "destination is empty"),
    ({"ordering_key": ""}, "ordering_key is empty"),
    ({"headers": "[]"}, "headers are not a JSON object"),
    ({"headers": "null"}, "headers are not a JSON object"),
    ({"headers": '"x"'}, "headers are not a JSON object"),
    ({"max_retry_count": -1}, "a retry count is negative"),
    ({"payload_bytes": b"1"}, "both payload_json and payload_bytes are given"),
    ({"destination": "", "headers": "[]"}, "destination is empty"),
    ({"headers": "[]", "payload_bytes": b"1"}, "headers are not a JSON object"),
    ({"max_retry_count": -1, "payload_bytes": b"1"}, "a retry count is negative"),
]
_FAULTS_OF_NEW_ROWS: list[tuple[Values, str]] = [
    ({"retry_count": -1}, "a retry count is negative"),
    ({"status": "PROCESSING", "event_type": ""}, "event_type is empty"),
    ({"status": "SENT", "event_type": ""}, "event_type is empty"),
    ({"status": "FAILED", "event_type": ""}, "event_type is empty"),
    ({"status": "CANCELLED", "event_type": ""}, "event_type is empty"),
]
_HINT = (
    "Keys and names are not empty, headers are an object of strings, a row has one payload at most."
)


def _insert(conn: Conn, rows: list[Values], tail: str = "") -> None:
    row = sql.SQL("({})").format(sql.SQL(", ").join(sql.Placeholder() * len(_GOOD)))
    conn.execute(
        sql.SQL("insert into app_outbox ({}) values {} {}").format(
            sql.SQL(", ").join(map(sql.Identifier, _GOOD)),
            sql.SQL(", ").join([row] * len(rows)),
            sql.SQL(tail),
        ),
        [value for values in rows for value in values.values()],
    )


def _copy(conn: Conn, rows: list[Values]) -> None:
    columns = sql.SQL(", ").join(map(sql.Identifier, _GOOD))
    with conn.cursor().copy(sql.SQL("copy app_outbox ({}) from stdin").format(columns)) as copy:
        for values in rows:
            copy.write_row(list(values.values()))


def _upsert(conn: Conn, rows: list[Values]) -> None:
    _insert(conn, rows, "on conflict (message_key) do update set event_type = excluded.event_type")


def _told(error: psycopg.Error) -> tuple[str | None, ...]:
    said = error.diag
    return said.sqlstate, said.message_primary, said.message_hint, said.table_name


@pytest.mark.parametrize("way", [_insert, _copy, _upsert])
@pytest.mark.parametrize(("fault", "message"), _FAULTS + _FAULTS_OF_NEW_ROWS)
def test_a_new_row_that_breaks_a_rule_takes_its_statement_with_it(
    conn: Conn, way: Callable[[Conn, list[Values]], None], fault: Values, message: str
) -> None:
    bad = _GOOD | fault
    others = [_GOOD | {"message_key": key} for key in ("first", "last")]
    for rows in ([bad], [others[0], bad, others[1]]):
        with pytest.raises(psycopg.errors.CheckViolation) as refused:
            way(conn, rows)
        assert _told(refused.value) == ("23514", f"app_outbox: {message}", _HINT, "app_outbox")
    for table in ("app_outbox", "app_outbox_queue", "app_outbox_failed", "app_outbox_counter"):
        assert count(conn, table) == 0


def test_the_first_of_several_bad_rows_is_told(conn: Conn) -> None:
    rows = [_GOOD | {"message_key": str(n), "headers": "[]"} for n in range(3)]
    rows[0] |= {"headers": "{}", "status": "SENT"}
    rows[2] |= {"event_type": ""}
    with pytest.raises(psycopg.errors.CheckViolation, match="headers are not a JSON object"):
        _insert(conn, rows)


@pytest.mark.parametrize(("fault", "message"), _FAULTS)
def test_an_update_that_breaks_a_rule_is_refused(conn: Conn, fault: Values, message: str) -> None:
    _insert(conn, [_GOOD])
    setting = sql.SQL(", ").join(
        sql.SQL("{} = {}").format(sql.Identifier(name), sql.Placeholder()) for name in fault
    )
    with pytest.raises(psycopg.errors.CheckViolation) as refused:
        conn.execute(sql.SQL("update app_outbox set {}").format(setting), list(fault.values()))
    assert _told(refused.value) == ("23514", f"app_outbox: {message}", _HINT, "app_outbox")


def test_one_statement_may_bring_rows_of_every_status(conn: Conn, desk: Desk) -> None:
    statuses = ["SENT", "PENDING", "FAILED", "PROCESSING", "PENDING", "CANCELLED", "SENT"]
    rows = [
        _GOOD | {"message_key": str(number), "status": status}
        for number, status in enumerate(statuses)
    ]
    _insert(conn, rows)
    assert faults(conn) == {}
    assert count(conn, "app_outbox_queue") == 2
    assert len(desk.claim().rows) == 2


def test_a_bad_row_that_is_absorbed_disturbs_nobody(conn: Conn) -> None:
    _insert(conn, [_GOOD])
    _insert(conn, [_GOOD | {"headers": "[]"}], "on conflict do nothing")
    assert states(conn) == {"PENDING": 1}
    assert count(conn, "app_outbox_queue") == 1


def test_a_load_without_triggers_is_not_checked(conn: Conn) -> None:
    conn.execute("set session_replication_role = replica")
    _insert(conn, [_GOOD | {"event_type": ""}])
    conn.execute("reset session_replication_role")
    assert (count(conn, "app_outbox"), count(conn, "app_outbox_queue")) == (1, 0)
