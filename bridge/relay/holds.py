"""Held keys: their followers come back step by step, by the thread that claims from the lanes."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from bridge.database.arrays import array

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.database.session import Session

STEP = 2000
"""Queue entries that come back in one step; a quarter of it of one key."""
_KEY_STEP = STEP // 4
_HOLDS_A_STEP = 200
_CHECKED = 500
_CHECK_INTERVAL = 1.0
_SHARE = 4
"""A step that took a time is followed by so many times that time without one."""

BEGINNING = -(1 << 63)


class Holds:
    """What the owner of lanes does for their held keys.

    A hold stands in the database for each row that holds up its key; `claim_ordered.sql` parks the
    followers that it meets, once. When the row is sent, cancelled, deleted or skipped, its hold is
    marked released, and the followers come back here. Used by the claimer thread alone, between its
    claims: parking and coming back never happen at the same time, whatever relay owns the lane.

    `guard` is held while ordered rows are claimed and put into the flight, while followers come
    back, and while failures are written. A claim therefore either sees the new hold, or its rows
    are in the flight before the failed row leaves it, where its lane is held.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._next_step = 0.0
        self._next_check = 0.0
        self._checked_to = BEGINNING
        self.guard = threading.Lock()
        self.any = False
        """Whether any key was held at the last search."""

    def work(self, lanes: Sequence[int], relay_id: int) -> int:
        """Let one step of followers come back where it is time; returns how many came."""
        now = time.monotonic()
        if not self.any or not lanes or now < self._next_step:
            return 0
        if now >= self._next_check:
            self._next_check = now + _CHECK_INTERVAL
            self.check(lanes)
        returned = self.step(lanes, relay_id)
        self._next_step = now + (1 + _SHARE) * (time.monotonic() - now)
        return returned

    def step(self, lanes: Sequence[int], relay_id: int) -> int:
        """Let one step of followers come back; returns how many came."""
        with self.guard:
            returned: int = self._session.value(
                "return_followers",
                {
                    "lanes": array(lanes),
                    "relay_id": relay_id,
                    "step": STEP,
                    "key_step": _KEY_STEP,
                    "hold_limit": _HOLDS_A_STEP,
                },
            )
        return returned

    def check(self, lanes: Sequence[int]) -> int:
        """Release holds whose row has gone on unseen, looking at some of them; returns how many.

        Whoever marked the row may have begun before the hold was there to be seen.
        """
        last, released = self._session.rows(
            "check_holds",
            {"lanes": array(lanes), "after_id": self._checked_to, "row_limit": _CHECKED},
        )[0]
        self._checked_to = BEGINNING if last is None else last
        count: int = released
        return count
