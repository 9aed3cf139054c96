"""The header Retry-After (RFC 9110, section 10.2.3): seconds, or an HTTP date (pure)."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def seconds_to_wait(text: str | None, date: str | None, now: float) -> float | None:
    """Return how long to wait; None where the header is missing or says nothing readable.

    A date is compared with the answer's own `Date` where it has one, so that clocks need not agree;
    else with `now`, in seconds since 1970. What is past is 0.
    """
    text = (text or "").strip()
    if text.isascii() and text.replace(".", "", 1).isdecimal():
        return float(text)
    until = _moment(text)
    if until is None:
        return None
    sent = _moment(date or "")
    since = sent.timestamp() if sent is not None else now
    return max(0.0, until.timestamp() - since)


def _moment(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError):
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
