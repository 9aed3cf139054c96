"""A message that was checked field by field and is ready to be written (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from bridge.errors import InvalidMessageError
from bridge.message import (
    MAX_DESTINATION,
    MAX_EVENT_TYPE,
    MAX_MESSAGE_KEY,
    MAX_ORDERING_KEY,
    RESERVED_HEADERS,
    Message,
)
from bridge.payload import encode_payload

_MAX_INTEGER = 2**31 - 1
_NO_HEADERS = "{}"


class Draft(NamedTuple):
    """The columns of a new row; the last two are the database's defaults where None."""

    message_key: str
    event_type: str
    destination: str
    ordering_key: str | None
    content_type: str | None
    headers: str
    payload_json: str | None
    payload_bytes: bytes | None
    max_retry_count: int | None
    not_before: datetime | None


def check_message(message: Message, context: Mapping[str, str], max_payload_bytes: int) -> Draft:
    """Check every field and encode headers and payload; `context` are headers of the current trace.

    The message's own headers win over `context`. Raises InvalidMessageError that names the field.
    """
    _check_text("message_key", message.message_key, MAX_MESSAGE_KEY)
    _check_text("event_type", message.event_type, MAX_EVENT_TYPE)
    _check_text("destination", message.destination, MAX_DESTINATION)
    if message.ordering_key is not None:
        _check_text("ordering_key", message.ordering_key, MAX_ORDERING_KEY)
    if message.not_before is not None:
        _check_time(message.not_before)
    if message.max_retry_count is not None:
        _check_count(message.max_retry_count)
    headers = _encode_headers(message.headers, context)
    encoded = encode_payload(message.payload, message.content_type, max_payload_bytes)
    return Draft(
        message.message_key,
        message.event_type,
        message.destination,
        message.ordering_key,
        encoded.content_type,
        headers,
        encoded.json,
        encoded.raw,
        message.max_retry_count,
        message.not_before,
    )


def _check_text(field: str, value: Any, limit: int) -> None:
    if not isinstance(value, str):
        raise InvalidMessageError(f"{field} must be str, not {type(value).__name__}")
    if not value:
        raise InvalidMessageError(f"{field} is empty")
    if len(value) > limit:
        raise InvalidMessageError(
            f"{field} has {len(value)} characters, the limit is {limit}: {value[:40]!r}…"
        )
    _check_characters(field, value)


def _check_characters(field: str, value: str) -> None:
    if "\x00" in value:
        raise InvalidMessageError(
            f"{field} holds a NUL character, which PostgreSQL cannot store: {value[:40]!r}"
        )
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidMessageError(
                f"{field} is not valid Unicode (character {error.start} is half a surrogate pair): "
                f"{value[:40]!r}"
            ) from error


def _check_time(value: Any) -> None:
    if not isinstance(value, datetime):
        raise InvalidMessageError(f"not_before must be datetime, not {type(value).__name__}")
    if value.utcoffset() is None:
        raise InvalidMessageError(
            f"not_before {value.isoformat()} has no time zone; add one, for example "
            "datetime.now(timezone.utc) + timedelta(minutes=5)"
        )


def _check_count(value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidMessageError(f"max_retry_count must be int, not {type(value).__name__}")
    if not 0 <= value <= _MAX_INTEGER:
        raise InvalidMessageError(f"max_retry_count {value} is not between 0 and {_MAX_INTEGER}")


def _encode_headers(headers: Mapping[str, str] | None, context: Mapping[str, str]) -> str:
    if headers is None:
        return orjson.dumps(context).decode() if context else _NO_HEADERS
    if not isinstance(headers, Mapping):
        raise InvalidMessageError(
            f"headers must be a mapping of str to str, not {type(headers).__name__}"
        )
    for name, value in headers.items():
        if not isinstance(name, str):
            raise InvalidMessageError(f"header name {name!r} must be str")
        if not name:
            raise InvalidMessageError("a header has an empty name")
        _check_characters(f"header name {name[:40]!r}", name)
        if name.lower() in RESERVED_HEADERS:
            raise InvalidMessageError(
                f"header {name!r} is written by the relay itself; take another name"
            )
        if not isinstance(value, str):
            raise InvalidMessageError(f"header {name!r} must be str, not {type(value).__name__}")
        _check_characters(f"header {name!r}", value)
    merged = dict(headers)
    if context:
        given = {name.lower() for name in headers}
        merged.update({n: v for n, v in context.items() if n.lower() not in given})
    return orjson.dumps(merged).decode() if merged else _NO_HEADERS
