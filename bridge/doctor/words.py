"""Numbers and lists in words (pure)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHOWN = 10
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP = 1024.0
_HOUR = 3600.0
_MINUTES = 120.0


def listed(names: Sequence[str], shown: int = _SHOWN) -> str:
    """Join names by commas; of many only the first."""
    more = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {more} more" if more > 0 else "")


def counted(number: int, one: str, many: str | None = None) -> str:
    """Write `1 row`, `1,234 rows`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def size(number: float) -> str:
    """Write bytes for people: 1.5 GiB."""
    unit = 0
    while abs(number) >= _STEP and unit < len(_UNITS) - 1:
        number /= _STEP
        unit += 1
    return f"{number:.0f} {_UNITS[unit]}" if unit == 0 else f"{number:.1f} {_UNITS[unit]}"


def span(seconds: float) -> str:
    """Write a time span for people: 12 s, 7 min, 3.5 h."""
    if seconds < _MINUTES:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 2 * _HOUR else f"{seconds / _HOUR:.1f} h"
