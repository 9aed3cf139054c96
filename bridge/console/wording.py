"""Numbers, times and sizes for people (pure)."""

from __future__ import annotations

from datetime import UTC, datetime

import orjson

COUNT_LIMIT = 10_000
"""Counts beyond it are written as `10,000+` where they were not taken any further."""

NONE = "\N{EN DASH}"
"""Stands where there is nothing to write."""

_UNITS = ((10, 1, "s", 1), (120, 1, "s", 0), (7200, 60, "min", 0), (172_800, 3600, "h", 1))
_KIB = 1024


def age(seconds: float | None) -> str:
    """Write a time span: 0.4 s, 12 s, 3 min, 5.0 h, 2.1 d; a dash for none."""
    if seconds is None:
        return NONE
    seconds = max(0.0, seconds)
    for limit, divisor, unit, digits in _UNITS:
        if seconds < limit:
            return f"{seconds / divisor:.{digits}f} {unit}"
    return f"{seconds / 86_400:.1f} d"


def count(number: int) -> str:
    """Write a number with thousands apart."""
    return f"{number:,}"


def capped(number: int, limit: int = COUNT_LIMIT) -> str:
    """Write a count that was taken up to `limit` rows and one more."""
    return f"{limit:,}+" if number > limit else f"{number:,}"


def moment(at: datetime | None) -> str:
    """Write a time in UTC to the second; a dash for none."""
    if at is None:
        return NONE
    if at.year in (1, 9999):
        return "the beginning of time" if at.year == 1 else "the end of time"
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def precise(at: datetime | None) -> str:
    """Write a time in UTC to the millisecond, and that it is UTC."""
    if at is None:
        return NONE
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"


def ago(at: datetime, now: datetime) -> str:
    """Write how long ago a time is, or in how long it will be."""
    seconds = (now - at).total_seconds()
    return f"in {age(-seconds)}" if seconds < -1 else f"{age(seconds)} ago"


def plain(value: object) -> str:
    """Write a value of a JSON document: texts as they are, everything else as JSON."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def size(number: int) -> str:
    """Write a number of bytes."""
    if number < _KIB:
        return f"{number} B"
    if number < _KIB * _KIB:
        return f"{number / _KIB:.1f} KiB"
    return f"{number / _KIB / _KIB:.1f} MiB"
