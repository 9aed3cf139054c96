"""Each field is checked before anything is written, with an error that names it."""

from __future__ import annotations

from collections import OrderedDict
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest

from bridge import InvalidMessageError, Message, enqueue, enqueue_many
from bridge.message import RESERVED_HEADERS
from tests.enqueue.messages import fields

Connection = psycopg.Connection[tuple[Any, ...]]

_TEXTS = {"message_key": 200, "event_type": 100, "destination": 200, "ordering_key": 200}

BAD = [
    *(
        (field, "x" * (limit + 1), f"{field} has {limit + 1} char")
        for field, limit in _TEXTS.items()
    ),
    *((field, "", f"{field} is empty") for field in _TEXTS),
    *((field, 7, f"{field} must be str, not int") for field in _TEXTS),
    *((field, b"x", f"{field} must be str, not bytes") for field in _TEXTS),
    *((field, "a\x00b", f"{field} holds a NUL") for field in _TEXTS),
    *((field, "a\ud800", f"{field} is not valid Unicode") for field in _TEXTS),
    *((field, None, f"{field} must be str") for field in _TEXTS if field != "ordering_key"),
    ("not_before", "2026-01-01", "not_before must be datetime, not str"),
    ("not_before", date(2026, 1, 1), "not_before must be datetime, not date"),
    ("not_before", datetime(2026, 1, 1), "has no time zone"),  # noqa: DTZ001 - the mistake
    ("max_retry_count", -1, "is not between 0 and"),
    ("max_retry_count", 2**31, "is not between 0 and"),
    ("max_retry_count", True, "must be int, not bool"),
    ("max_retry_count", 1.0, "must be int, not float"),
    ("headers", [("a", "b")], "headers must be a mapping"),
    ("headers", "a=b", "headers must be a mapping"),
    ("headers", {1: "x"}, "header name 1 must be str"),
    ("headers", {"": "x"}, "empty name"),
    ("headers", {"a": 1}, "header 'a' must be str, not int"),
    ("headers", {"a": None}, "header 'a' must be str, not NoneType"),
    ("headers", {"a": b"x"}, "header 'a' must be str, not bytes"),
    ("headers", {"a": "\x00"}, "header 'a' holds a NUL"),
    ("headers", {"a\x00": "x"}, "holds a NUL"),
    ("headers", {"a": "\ud800"}, "header 'a' is not valid Unicode"),
    *(("headers", {name: "x"}, "written by the relay") for name in sorted(RESERVED_HEADERS)),
    *(
        ("headers", {name.title(): "x"}, "written by the relay")
        for name in sorted(RESERVED_HEADERS)
    ),
]


@pytest.mark.parametrize(("field", "value", "complaint"), BAD)
def test_bad_field_is_refused_before_anything_is_written(
    conn: Connection, field: str, value: Any, complaint: str
) -> None:
    arguments: dict[str, Any] = {**fields(), "payload": {}, field: value}
    with pytest.raises(InvalidMessageError, match=complaint):
        enqueue(conn, **arguments)
    good = Message(**fields("good"), payload={})
    with pytest.raises(InvalidMessageError, match=rf"^messages\[1\]: .*{complaint}"):
        enqueue_many(conn, [good, Message(**arguments), good])
    with pytest.raises(InvalidMessageError, match=rf"^messages\[0\]: .*{complaint}"):
        enqueue_many(conn, [arguments])
    assert conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        ({"on_duplicate": "ignore"}, "on_duplicate must be one of error, absorb, strict"),
        ({"on_duplicate": None}, "on_duplicate must be one of"),
        ({"ignore": "eventAt"}, r"write \('eventAt',\)"),
        ({"ignore": [1]}, "ignore must hold names"),
    ],
)
def test_bad_option_is_refused(conn: Connection, option: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidMessageError, match=complaint):
        enqueue(conn, **fields(), payload={}, **option)
    with pytest.raises(InvalidMessageError, match=complaint):
        enqueue_many(conn, [], **option)
    with pytest.raises(InvalidMessageError, match="schema must be str"):
        enqueue(conn, **fields(), payload={}, schema=7)  # type: ignore[arg-type]


def test_errors_are_value_errors_too(conn: Connection) -> None:
    with pytest.raises(ValueError, match="message_key is empty"):
        enqueue(conn, **fields(""), payload={})


def test_limits_are_the_columns(conn: Connection) -> None:
    """Characters count, not bytes, as in PostgreSQL's varchar."""
    for text in ("x", "é", "😀"):
        longest: dict[str, Any] = {field: text * limit for field, limit in _TEXTS.items()}
        enqueue(conn, **longest, payload={})
    row = conn.execute("select count(*) from app_outbox").fetchone()
    assert row == (3,)


def test_every_field_lands_in_its_column(conn: Connection) -> None:
    at = datetime(2031, 5, 6, 7, 8, 9, 123456, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    headers = OrderedDict({"tenant": "a", "note": "é 😀 \n\"'"})
    arguments: dict[str, Any] = {
        "message_key": "k",
        "event_type": "e",
        "destination": "d",
        "payload": {"a": 1},
        "headers": headers,
        "ordering_key": "o",
        "not_before": at,
        "max_retry_count": 9,
    }
    enqueue(conn, **arguments)
    enqueue_many(conn, [{**arguments, "message_key": "k2"}])
    rows = conn.execute(
        "select event_type, destination, ordering_key, content_type, headers, payload_json,"
        " payload_bytes, max_retry_count, next_run_at, status, retry_count, claim_count"
        " from app_outbox"
    ).fetchall()
    expected = ("e", "d", "o", None, dict(headers), {"a": 1}, None, 9, at, "PENDING", 0, 0)
    assert rows == [expected, expected]


def test_what_is_left_out_is_the_columns_default(conn: Connection) -> None:
    enqueue(conn, **fields("a"), payload={})
    enqueue_many(conn, [Message(**fields("b"), payload={}, headers={})])
    conn.execute(
        "insert into app_outbox (message_key, event_type, destination) values ('c', 'e', 'd')"
    )
    rows = conn.execute(
        "select headers, ordering_key, max_retry_count, next_run_at = now(), created_at = now()"
        " from app_outbox"
    ).fetchall()
    assert rows == [({}, None, 5, True, True)] * 3


def test_past_times_are_due_at_once(conn: Connection) -> None:
    enqueue(conn, **fields(), payload={}, not_before=datetime(1970, 1, 1, tzinfo=UTC))
    row = conn.execute("select next_run_at < now() from app_outbox").fetchone()
    assert row == (True,)
