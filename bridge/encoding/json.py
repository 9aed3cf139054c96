"""A claimed row as a Kafka record: payload bytes unchanged, headers in UTF-8."""

from __future__ import annotations

from typing import Any

import orjson

from bridge.message import (
    HEADER_ATTEMPT,
    HEADER_CONTENT_TYPE,
    HEADER_EVENT_TYPE,
    HEADER_IDEMPOTENCY_KEY,
    HEADER_OUTBOX_ID,
    JSON_CONTENT_TYPE,
    RESERVED_HEADERS,
    ClaimedRow,
)

RecordHeaders = list[tuple[str, Any]]

_JSON_TYPE = (HEADER_CONTENT_TYPE, JSON_CONTENT_TYPE)


class CannotEncode(Exception):  # noqa: N818 - carries a row's fault to the settler
    """The row cannot be turned into a record; the text says why."""


def record_headers(row: ClaimedRow) -> RecordHeaders:
    """Return the record's headers: the relay's own, then the row's.

    Raises CannotEncode for headers that plain SQL let through: values that are not strings, or
    names that belong to the relay.
    """
    headers: RecordHeaders = [
        (HEADER_OUTBOX_ID, str(row[0])),
        (HEADER_EVENT_TYPE, row[4]),
        (HEADER_IDEMPOTENCY_KEY, row[2]),
        _JSON_TYPE if row[5] is None else (HEADER_CONTENT_TYPE, row[5]),
        (HEADER_ATTEMPT, str(row[6])),
    ]
    if row[7] is not None:
        for name, value in orjson.loads(row[7]).items():
            if not isinstance(value, str):
                raise CannotEncode(
                    f"header {name!r} is {type(value).__name__}, headers are string to string"
                )
            if name.lower() in RESERVED_HEADERS:
                raise CannotEncode(f"header {name!r} is written by the relay itself; rename it")
            headers.append((name, value))
    return headers
