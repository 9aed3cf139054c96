"""A claimed row as a Kafka record: payload bytes unchanged, headers in UTF-8."""

from __future__ import annotations

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

RecordHeaders = dict[str, str | bytes | None]
"""Headers in the order in which they are written; librdkafka takes a dict faster than a list."""


class CannotEncode(Exception):  # noqa: N818 - carries a row's fault to the settler
    """The row cannot be turned into a record; the text says why."""


def record_headers(row: ClaimedRow) -> RecordHeaders:
    """Return the record's headers: the relay's own, then the row's.

    Raises CannotEncode for headers that plain SQL let through: values that are not strings, names
    that belong to the relay, or what jsonb holds and Python cannot (1e400, very deep nesting).
    """
    headers: RecordHeaders = {
        HEADER_OUTBOX_ID: str(row[0]),
        HEADER_EVENT_TYPE: row[4],
        HEADER_IDEMPOTENCY_KEY: row[2],
        HEADER_CONTENT_TYPE: row[5] or JSON_CONTENT_TYPE,
        HEADER_ATTEMPT: str(row[6]),
    }
    if row[7] is not None:
        try:
            own = orjson.loads(row[7])
        except orjson.JSONDecodeError as error:
            raise CannotEncode(f"headers cannot be read: {error}") from error
        if not isinstance(own, dict):
            raise CannotEncode("headers are not a JSON object")
        for name, value in own.items():
            if not isinstance(value, str):
                raise CannotEncode(
                    f"header {name!r} is {type(value).__name__}, headers are string to string"
                )
            if name.lower() in RESERVED_HEADERS:
                raise CannotEncode(f"header {name!r} is written by the relay itself; rename it")
            headers[name] = value
    return headers
