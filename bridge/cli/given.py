"""Payloads, headers and times as they are given on the command line."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bridge.errors import InvalidMessageError

_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(s|m|h|d)")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def payload_from(text: str | None) -> bytes | None:
    """Read a payload (JSON, @FILE or - for stdin) as bytes, so that it is kept byte for byte.

    Raises InvalidMessageError for a file that cannot be read.
    """
    if text is None:
        return None
    if text == "-":
        return sys.stdin.buffer.read()
    if not text.startswith("@"):
        return text.encode()
    path = Path(text[1:])
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidMessageError(
            f"payload file {path} cannot be read: {error.strerror}"
        ) from error


def headers_from(pairs: list[str]) -> dict[str, str]:
    """Read headers written NAME=VALUE. Raises InvalidMessageError."""
    headers: dict[str, str] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise InvalidMessageError(f"header {pair!r} must be written NAME=VALUE")
        if name in headers:
            raise InvalidMessageError(f"header {name!r} is given twice; a row holds each name once")
        headers[name] = value
    return headers


def time_from(text: str | None, option: str) -> datetime | None:
    """Read an ISO 8601 time, UTC if it says none. Raises InvalidMessageError."""
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidMessageError(
            f"{option} {text!r} is no ISO 8601 time; write 2026-01-31T08:00:00+01:00"
        ) from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def time_or_age_from(text: str | None, option: str) -> datetime | None:
    """Read an ISO 8601 time or an age, such as 90s, 30m, 2h or 1d ago."""
    match = _SPAN.fullmatch(text.strip()) if text else None
    if match is None:
        return time_from(text, option)
    try:
        return datetime.now(UTC) - timedelta(**{_UNITS[match[2]]: float(match[1])})
    except OverflowError as error:
        raise InvalidMessageError(f"{option} {text!r} is too long ago") from error
