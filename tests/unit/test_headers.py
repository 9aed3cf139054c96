"""A row's headers as a record's headers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.encoding.json import CannotEncode, record_headers
from bridge.message import RESERVED_HEADERS, ClaimedRow


def row(headers: bytes | None = None, **changed: Any) -> ClaimedRow:
    given_row = ClaimedRow(
        outbox_id=7,
        destination="orders",
        message_key="order-7",
        ordering_key=None,
        event_type="order.created",
        content_type=None,
        claim_count=2,
        headers=headers,
        payload_json=b"{}",
        payload_bytes=None,
        deferred=None,
        next_run_at=None,
        lane=None,
    )
    return given_row._replace(**changed)


def test_the_relays_own_headers_come_first() -> None:
    assert list(dict(record_headers(row(b'{"a": "b"}'))).items()) == [
        ("outbox-id", "7"),
        ("event-type", "order.created"),
        ("idempotency-key", "order-7"),
        ("content-type", "application/json"),
        ("outbox-attempt", "2"),
        ("a", "b"),
    ]


def test_the_content_type_of_bytes_is_the_rows() -> None:
    assert dict(record_headers(row(content_type="avro/binary")))["content-type"] == "avro/binary"


@pytest.mark.parametrize("value", ["1", "null", "true", "[]", "{}", "1.5"])
def test_values_that_are_no_strings_cannot_be_sent(value: str) -> None:
    with pytest.raises(CannotEncode, match="'a'"):
        record_headers(row(f'{{"a": {value}}}'.encode()))


@pytest.mark.parametrize("name", sorted(RESERVED_HEADERS))
def test_reserved_names_cannot_be_sent_in_any_case(name: str) -> None:
    for spelled in (name, name.upper(), name.title()):
        with pytest.raises(CannotEncode, match="rename it"):
            record_headers(row(f'{{"{spelled}": "x"}}'.encode()))


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=50), max_size=5))
def test_every_other_header_travels_unchanged(headers: dict[str, str]) -> None:
    import orjson  # noqa: PLC0415 - only to write what the database would send

    own = {k: v for k, v in headers.items() if k.lower() not in RESERVED_HEADERS}
    assert dict(list(dict(record_headers(row(orjson.dumps(own)))).items())[5:]) == own


@pytest.mark.parametrize("headers", ["[]", '"x"', "1", "null", "true"])
def test_headers_that_are_no_object_cannot_be_sent(headers: str) -> None:
    """A load that skips triggers lets them in; they must not end the relay."""
    with pytest.raises(CannotEncode, match="not a JSON object"):
        record_headers(row(headers.encode()))
