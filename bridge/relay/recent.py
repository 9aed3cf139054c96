"""Destinations that had rows lately: the next row of one must not wait for a search."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_SECONDS = 10.0
"""For how long a destination is looked at after its last row was seen."""


class Recent:
    """Adds to what a search found what earlier ones did: a busy queue is empty most of the time.

    `most`: how many destinations without rows are looked at all the same; each costs a look into
    the index.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._last_seen: dict[str, float] = {}

    def remember(self, found: Sequence[str], now: float) -> list[str]:
        """Return the destinations found by a search at `now`, and those that had rows lately."""
        self._last_seen.update(dict.fromkeys(found, now))
        if len(self._last_seen) == len(found):
            return list(found)
        recent = {name: at for name, at in self._last_seen.items() if at > now - _SECONDS}
        quiet = sorted(recent.keys() - set(found), key=lambda name: -recent[name])
        self._last_seen = recent
        return [*found, *quiet[: self._most]]
