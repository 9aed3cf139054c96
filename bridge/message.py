"""What travels: a message as the application gives it, a row as a relay claims it (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

MAX_MESSAGE_KEY = 200
MAX_EVENT_TYPE = 100
MAX_DESTINATION = 200
MAX_ORDERING_KEY = 200
MAX_CONTENT_TYPE = 100
MAX_ERROR_CODE = 100
MAX_ERROR_MESSAGE = 1000

JSON_CONTENT_TYPE = "application/json"

HEADER_OUTBOX_ID = "outbox-id"
HEADER_EVENT_TYPE = "event-type"
HEADER_IDEMPOTENCY_KEY = "idempotency-key"
HEADER_CONTENT_TYPE = "content-type"
HEADER_ATTEMPT = "outbox-attempt"

RESERVED_HEADERS = frozenset(
    {
        HEADER_OUTBOX_ID,
        HEADER_EVENT_TYPE,
        HEADER_IDEMPOTENCY_KEY,
        HEADER_CONTENT_TYPE,
        HEADER_ATTEMPT,
    }
)
"""Record headers that the relay writes itself; a row's own headers must not use these names."""

HEADER_REPLAY_ID = "outbox-replay-id"
"""Set in a row's own headers by an operator's replay (in SQL): one id for all rows of a replay."""

HEADER_DEAD_LETTER_CODE = "dead-letter-code"
HEADER_DEAD_LETTER_REASON = "dead-letter-reason"
HEADER_DEAD_LETTER_TOPIC = "dead-letter-topic"
HEADER_DEAD_LETTER_DESTINATION = "dead-letter-destination"
HEADER_DEAD_LETTER_ATTEMPTS = "dead-letter-attempts"
HEADER_DEAD_LETTER_FAILED_AT = "dead-letter-failed-at"

DEAD_LETTER_HEADERS = frozenset(
    {
        HEADER_DEAD_LETTER_CODE,
        HEADER_DEAD_LETTER_REASON,
        HEADER_DEAD_LETTER_TOPIC,
        HEADER_DEAD_LETTER_DESTINATION,
        HEADER_DEAD_LETTER_ATTEMPTS,
        HEADER_DEAD_LETTER_FAILED_AT,
    }
)
"""Further headers of a record in a dead-letter topic; a row's own of these names give way there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message as the application gives it to `enqueue_many`; the fields of `enqueue`."""

    message_key: str
    event_type: str
    destination: str
    payload: Any
    content_type: str | None = None
    headers: Mapping[str, str] | None = None
    ordering_key: str | None = None
    not_before: datetime | None = None
    max_retry_count: int | None = None


class ClaimedRow(NamedTuple):
    """One claimed row, in the column order of `claim_rows.sql` and `claim_ordered.sql`.

    A tuple, because a relay makes one for every message it sends. `headers` and `payload_json` are
    the raw bytes of the json values; `deferred` is the payload's size in bytes where it was left
    in the database to be fetched within the memory budget, else None. Times are raw, see Session.
    """

    outbox_id: int
    destination: str
    message_key: str
    ordering_key: str | None
    event_type: str
    content_type: str | None
    claim_count: int
    headers: bytes | None
    payload_json: bytes | None
    payload_bytes: bytes | None
    deferred: int | None
    next_run_at: object
    lane: int | None
    created_at: object = None


def payload_of(row: ClaimedRow) -> bytes | None:
    """Return the payload that came with the row; the hot loops say the same in place."""
    return row[8] if row[8] is not None else row[9]


@dataclass(frozen=True, slots=True)
class Record:
    """A Kafka record ready to be produced."""

    topic: str
    key: str | None
    value: bytes | None
    headers: dict[str, str | bytes | None]
