"""A Kafka record as a handler sees it, and why some cannot be read."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bridge.message import (
    HEADER_ATTEMPT,
    HEADER_CONTENT_TYPE,
    HEADER_EVENT_TYPE,
    HEADER_IDEMPOTENCY_KEY,
    HEADER_OUTBOX_ID,
    JSON_CONTENT_TYPE,
    MAX_EVENT_TYPE,
    MAX_MESSAGE_KEY,
)

if TYPE_CHECKING:
    from collections.abc import Iterable


class UndecodableError(Exception):
    """The record is not one that can ever be handled; the text says what is wrong with it."""


@dataclass(slots=True)
class Received:
    """One message, not to be changed.

    `timestamp` is Kafka's, in milliseconds since 1970. `headers` are all of the record, `outbox_id`
    is None and `event_type` empty where a record was not written by a relay. `attempt` counts how
    often this process has handed it to its handler, from 1.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, str]
    message_key: str
    event_type: str
    outbox_id: int | None
    content_type: str
    attempt: int

    @property
    def is_tombstone(self) -> bool:
        """Whether the record has no payload at all."""
        return self.value is None

    @property
    def is_repeated(self) -> bool:
        """Whether the relay has handed it to Kafka before: a duplicate is likely, not certain."""
        return self.headers.get(HEADER_ATTEMPT, "1") != "1"

    @property
    def place(self) -> str:
        """Where the record stands, for people."""
        return f"{self.topic}/{self.partition}@{self.offset}"


def read_record(record: Any, attempt: int) -> Received:
    """Read a record of aiokafka; raises UndecodableError.

    A record without `idempotency-key` is known by its place, which is as good as a key for
    deliveries of that record, but not where a producer wrote the message twice.
    """
    headers = _headers(record.headers)
    message_key = headers.get(HEADER_IDEMPOTENCY_KEY)
    if message_key is None:
        message_key = key_of_place(record.topic, record.partition, record.offset)
    elif not 0 < len(message_key) <= MAX_MESSAGE_KEY or "\0" in message_key:
        raise UndecodableError(
            f"header {HEADER_IDEMPOTENCY_KEY} must be 1 to {MAX_MESSAGE_KEY} characters without NUL"
        )
    event_type = headers.get(HEADER_EVENT_TYPE, "")
    if len(event_type) > MAX_EVENT_TYPE or "\0" in event_type:
        raise UndecodableError(
            f"header {HEADER_EVENT_TYPE} must be at most {MAX_EVENT_TYPE} characters without NUL"
        )
    return Received(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp,
        record.key,
        record.value,
        headers,
        message_key,
        event_type,
        _outbox_id(headers.get(HEADER_OUTBOX_ID)),
        headers.get(HEADER_CONTENT_TYPE, JSON_CONTENT_TYPE),
        attempt,
    )


def key_of_place(topic: str, partition: int, offset: int) -> str:
    """Return the key of a record that brings none."""
    place = f"{topic}/{partition}/{offset}"
    if len(place) <= MAX_MESSAGE_KEY:
        return place
    return f"{hashlib.sha256(topic.encode()).hexdigest()}/{partition}/{offset}"


def content_hash(received: Received) -> bytes:
    """Return what tells a repetition from another message under the same key: 32 bytes."""
    return hash_content(received.event_type, received.value)


def hash_content(event_type: str, payload: bytes | None) -> bytes:
    """Return SHA-256 of: event type, a zero byte, the digit 1 (payload) or 0 (none), payload."""
    digest = hashlib.sha256(event_type.encode())
    digest.update(b"\x000" if payload is None else b"\x001")
    if payload is not None:
        digest.update(payload)
    return digest.digest()


def _headers(given: Iterable[tuple[str, bytes | None]]) -> dict[str, str]:
    headers = {}
    for name, value in given:
        try:
            # Of several of one name the last counts, as in Kafka's own `lastHeader`.
            headers[name] = "" if value is None else value.decode()
        except UnicodeDecodeError as error:
            raise UndecodableError(f"header {name!r} is not UTF-8") from error
    return headers


def _outbox_id(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or int(text) >= 1 << 63:
        raise UndecodableError(f"header {HEADER_OUTBOX_ID} is {text[:40]!r}, not a number")
    return int(text)
