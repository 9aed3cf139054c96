"""A row that can never be sent as a record of its dead-letter topic: why, from where, how often."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING

from bridge.encoding.json import CannotEncode, RecordHeaders, record_headers
from bridge.message import (
    DEAD_LETTER_HEADERS,
    HEADER_DEAD_LETTER_ATTEMPTS,
    HEADER_DEAD_LETTER_CODE,
    HEADER_DEAD_LETTER_DESTINATION,
    HEADER_DEAD_LETTER_FAILED_AT,
    HEADER_DEAD_LETTER_REASON,
    HEADER_DEAD_LETTER_TOPIC,
    MAX_ERROR_MESSAGE,
    ClaimedRow,
)

if TYPE_CHECKING:
    from datetime import datetime


def dead_letter_headers(
    row: ClaimedRow, *, code: str, reason: str, topic: str, failed_at: datetime
) -> RecordHeaders:
    """Return the headers of the row's own record, then those that say why it is a dead letter.

    `code` and `reason` as in `last_error_code` and `last_error_msg`; `topic` is where the record
    was refused; `failed_at` must know its time zone. Never fails: headers of a row that cannot be
    written (see `record_headers`) are left out, and such as have a name of ours give way to it.
    """
    try:
        headers = record_headers(row)
    except CannotEncode:
        headers = record_headers(row._replace(headers=None))
    for name in [name for name in headers if name.lower() in DEAD_LETTER_HEADERS]:
        del headers[name]
    headers[HEADER_DEAD_LETTER_CODE] = code
    headers[HEADER_DEAD_LETTER_REASON] = reason[:MAX_ERROR_MESSAGE]
    headers[HEADER_DEAD_LETTER_TOPIC] = topic
    headers[HEADER_DEAD_LETTER_DESTINATION] = row.destination
    headers[HEADER_DEAD_LETTER_ATTEMPTS] = str(row.claim_count)
    headers[HEADER_DEAD_LETTER_FAILED_AT] = failed_at.astimezone(UTC).isoformat()
    return headers
