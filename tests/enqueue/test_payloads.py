"""What an application may give as a payload, and what it becomes."""

from __future__ import annotations

import dataclasses
import enum
import json
import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import psycopg
import pydantic
import pytest

from bridge import InvalidMessageError, enqueue
from bridge.payload import EncodedPayload, encode_payload
from tests.enqueue.messages import fields

Connection = psycopg.Connection[tuple[Any, ...]]
LIMIT = 1_000_000


@dataclasses.dataclass
class Line:
    sku: str
    count: int = 1


@dataclasses.dataclass(slots=True)
class Order:
    order_id: int
    lines: list[Line]
    _private: int = 7


class Status(enum.Enum):
    NEW = "new"


class Item(pydantic.BaseModel):
    name: str
    at: datetime
    price: float | None = None


AT = datetime(2026, 1, 31, 8, tzinfo=UTC)
NUMBER = uuid.UUID(int=1)


def encode(payload: Any) -> str | None:
    return encode_payload(payload, None, LIMIT).json


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ({"a": 1, "b": None, "c": [True, 1.5, "é"]}, '{"a":1,"b":null,"c":[true,1.5,"é"]}'),
        ([1, {"a": []}], '[1,{"a":[]}]'),
        ((1, 2), "[1,2]"),
        ({}, "{}"),
        (Order(1, [Line("x")]), '{"order_id":1,"lines":[{"sku":"x","count":1}]}'),
        (Item(name="x", at=AT), '{"name":"x","at":"2026-01-31T08:00:00Z","price":null}'),
        (
            {"item": Item(name="x", at=AT, price=2), "l": [Line("y")]},
            '{"item":{"name":"x","at":"2026-01-31T08:00:00Z","price":2.0},"l":[{"sku":"y","count":1}]}',
        ),
        (pydantic.RootModel[list[int]]([1, 2]), "[1,2]"),
        (
            [AT, date(2026, 1, 31), time(8), NUMBER, Status.NEW],
            f'["2026-01-31T08:00:00+00:00","2026-01-31","08:00:00","{NUMBER}","new"]',
        ),
        ({"nul": "\x00"}, '{"nul":"\\u0000"}'),
    ],
)
def test_objects_become_json(payload: Any, text: str) -> None:
    assert encode(payload) == text


@pytest.mark.parametrize(
    "text",
    [
        ' { "a" : 1,\n\t"a": 2 } ',
        "1",
        "null",
        '"text"',
        "[1.0, 1e3, 123456789012345678901234567890]",
        '{"é": "\\u00e9 \\ud83d\\ude00 😀"}',
        '"\\u0000"',
        '"a\\/b"',
    ],
)
def test_ready_json_is_kept_byte_for_byte(conn: Connection, text: str) -> None:
    for number, payload in enumerate(
        (text, text.encode(), bytearray(text.encode()), memoryview(text.encode()))
    ):
        enqueue(conn, **fields(f"k-{number}"), payload=payload)
    rows = conn.execute("select payload_json::text, payload_bytes from app_outbox").fetchall()
    assert rows == [(text, None)] * 4


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        ("hello", r"payload \(str\) is not JSON.*dict or list"),
        ("", "is not JSON"),
        ("{'a': 1}", "is not JSON"),
        ('{"a": NaN}', "is not JSON"),
        ('{"a": 1}x', "is not JSON"),
        ("1e999", "is not JSON.*infinity"),
        ('"\x00"', "is not JSON"),
        ('"\\ud800"', "is not JSON"),
        ('"\ud800"', "half a surrogate pair"),
        ("\ufeff{}", "is not JSON"),
        (b"\xff", r"payload \(bytes\) is not JSON.*give content_type"),
        ('"\u00e9"'.encode("latin-1"), "is not JSON"),
        ("[" * 2000 + "]" * 2000, "is not JSON"),
        (b"", "is not JSON"),
        (7, "payload is int; give a dict"),
        (1.5, "payload is float"),
        (True, "payload is bool"),
        ({1, 2}, "payload is set"),
        (AT, "payload is datetime"),
        (Order, "payload is type"),
        (Item, "payload is ModelMetaclass"),
        (object(), "payload is object"),
        ({"a": float("nan")}, r"payload\.a is nan"),
        ({"a": [None, {"b": float("inf")}]}, r"payload\.a\[1\]\.b is inf"),
        (Item(name="x", at=AT, price=float("nan")), r"payload\.price is nan"),
        ({"m": Item(name="x", at=AT, price=float("-inf"))}, r"payload\.m\.price is -inf"),
        ([Line("x"), Line(float("nan"))], r"payload\[1\]\.sku is nan"),  # type: ignore[arg-type]
        ({"a": {1: 2}}, r"payload\.a has the key 1 \(int\)"),
        ({None: 1}, "has the key None"),
        ({"a": [{"b": {3}}]}, r"payload\.a\[0\]\.b is set"),
        ({"a": Decimal(1)}, r"payload\.a is Decimal"),
        ({"a": b"x"}, r"payload\.a is bytes"),
        ({"a": 2**64}, r"payload\.a exceeds 64 bits"),
        ({"a": -(2**63) - 1}, r"payload\.a exceeds 64 bits"),
        ({"a": "\ud800"}, r"payload\.a holds half a surrogate pair"),
        ({"\ud800": 1}, "a key with half a surrogate pair"),
    ],
)
def test_everything_else_is_refused_and_the_place_named(payload: Any, complaint: str) -> None:
    with pytest.raises(InvalidMessageError, match=complaint):
        encode(payload)


def test_payload_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidMessageError, match="contains itself"):
        encode(loop)


def test_bytes_with_a_content_type_are_kept_as_they_are(conn: Connection) -> None:
    raw = bytes(range(256))
    for number, payload in enumerate((raw, bytearray(raw), memoryview(raw), b"")):
        enqueue(conn, **fields(f"k-{number}"), payload=payload, content_type="application/x-p")
    rows = conn.execute("select payload_json, payload_bytes, content_type from app_outbox")
    assert rows.fetchall() == [(None, raw, "application/x-p")] * 3 + [
        (None, b"", "application/x-p")
    ]


def test_none_is_a_tombstone(conn: Connection) -> None:
    enqueue(conn, **fields(), payload=None)
    row = conn.execute(
        "select payload_json, payload_bytes, content_type from app_outbox"
    ).fetchone()
    assert row == (None, None, None)


@pytest.mark.parametrize(
    ("payload", "content_type", "complaint"),
    [
        ({}, "application/json", "goes with a bytes payload"),
        ("text", "text/plain", "goes with a bytes payload"),
        (None, "text/plain", "tombstone"),
        (b"x", "", "must be a media type"),
        (b"x", 7, "must be a media type"),
        (b"x", "text/é", "must be a media type"),
        (b"x", "x" * 101, "at most 100"),
        (b"x", "text/plain\n", "printable"),
        (b"x", "a\x00b", "printable"),
    ],
)
def test_content_type_is_for_bytes_and_a_media_type(
    payload: Any, content_type: Any, complaint: str
) -> None:
    with pytest.raises(InvalidMessageError, match=complaint):
        encode_payload(payload, content_type, LIMIT)


@pytest.mark.parametrize(
    ("payload", "size", "content_type"),
    [
        ({"a": "é" * 10}, 28, None),
        ('"' + "é" * 10 + '"', 22, None),
        ('"' + "a" * 10 + '"', 12, None),
        (b'"aaaa"', 6, None),
        (b"raw bytes", 9, "application/x-p"),
    ],
)
def test_limit_counts_utf8_bytes(payload: Any, size: int, content_type: str | None) -> None:
    encode_payload(payload, content_type, size)
    with pytest.raises(InvalidMessageError, match=f"payload has {size} bytes, the limit is"):
        encode_payload(payload, content_type, size - 1)


def test_tombstone_has_no_size() -> None:
    assert encode_payload(None, None, 0) == EncodedPayload(None, None, None)


def test_payload_of_the_default_limit_is_written(conn: Connection) -> None:
    text = json.dumps("x" * (LIMIT - 2))
    enqueue(conn, **fields(), payload=text)
    with pytest.raises(InvalidMessageError, match="1000001 bytes, the limit is 1000000"):
        enqueue(conn, **fields("other"), payload=text[:-1] + 'x"')
    enqueue(conn, **fields("other"), payload=text[:-1] + 'x"', max_payload_bytes=2_000_000)


def test_nul_escape_reaches_the_database_unchanged(conn: Connection) -> None:
    """json keeps the escape; only a cast to jsonb refuses it."""
    enqueue(conn, **fields(), payload={"a": "\x00"})
    row = conn.execute("select payload_json::text from app_outbox").fetchone()
    assert row == ('{"a":"\\u0000"}',)
