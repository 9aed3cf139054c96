"""What a record in a dead-letter topic says about itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import orjson
import pytest

from bridge.encoding.dead_letter import dead_letter_headers
from bridge.encoding.json import record_headers
from bridge.message import DEAD_LETTER_HEADERS, RESERVED_HEADERS
from tests.unit.test_headers import row

FAILED_AT = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
WHY = {
    "dead-letter-code": "MESSAGE_TOO_LARGE",
    "dead-letter-reason": "larger than 2000 bytes",
    "dead-letter-topic": "shop.orders",
    "dead-letter-destination": "orders",
    "dead-letter-attempts": "2",
    "dead-letter-failed-at": "2026-03-01T12:30:00+00:00",
}


def headers_of(
    headers: bytes | None,
    reason: str = "larger than 2000 bytes",
    failed_at: datetime = FAILED_AT,
) -> dict[str, str | bytes | None]:
    return dead_letter_headers(
        row(headers),
        code="MESSAGE_TOO_LARGE",
        reason=reason,
        topic="shop.orders",
        failed_at=failed_at,
    )


def test_the_records_own_headers_come_first_then_why_from_where_and_how_often() -> None:
    given = b'{"traceparent": "00-ab"}'
    assert list(headers_of(given).items()) == [
        *record_headers(row(given)).items(),
        *WHY.items(),
    ]


def test_the_names_are_those_that_are_known_to_be_ours() -> None:
    assert set(WHY) == DEAD_LETTER_HEADERS
    assert not DEAD_LETTER_HEADERS & RESERVED_HEADERS


@pytest.mark.parametrize("spelled", [str.lower, str.upper, str.title])
def test_a_rows_own_headers_of_these_names_give_way(spelled: object) -> None:
    assert callable(spelled)
    given = orjson.dumps({spelled(name): "forged" for name in WHY} | {"kept": "yes"})
    headers = headers_of(given)
    assert headers["kept"] == "yes"
    assert "forged" not in headers.values()
    assert headers.items() >= WHY.items()


@pytest.mark.parametrize("headers", [b'{"n": 1}', b'{"outbox-id": "7"}', b"[]", b'{"n": 1e400}'])
def test_headers_that_cannot_be_written_are_left_out(headers: bytes) -> None:
    """They are why the row is a dead letter; the record itself must go through."""
    assert headers_of(headers) == record_headers(row()) | WHY


def test_a_long_reason_is_cut_and_another_time_zone_is_turned_into_utc() -> None:
    tokyo = FAILED_AT.astimezone(timezone(timedelta(hours=9)))
    headers = headers_of(None, reason="ä" * 5000, failed_at=tokyo)
    assert headers["dead-letter-reason"] == "ä" * 1000
    assert headers["dead-letter-failed-at"] == "2026-03-01T12:30:00+00:00"
