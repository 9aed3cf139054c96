"""Finds what triggers did not see: rows without queue entry, rows without claim, wrong counters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.lifecycle import RESCUED_MESSAGE, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.database.session import Session

STEP = 20_000
"""Ids per statement, so that no transaction is long."""

_LOWEST = -(1 << 63)


@dataclass(frozen=True, slots=True)
class Repair:
    """What one pass put right, in rows."""

    queued: int = 0
    """PENDING rows that had no queue entry."""
    released: int = 0
    """PROCESSING rows that had no claim."""
    adopted: int = 0
    """Ordering keys whose followers waited although nothing held the key."""


class Reconciler:
    """Walks the outbox by id and puts the side tables right.

    Needed after a restore, since `session_replication_role = replica` skips triggers; otherwise it
    finds nothing.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def reconcile(
        self,
        keep_on: Callable[[], bool] = lambda: True,
        on_step: Callable[[int, int], None] = lambda _done, _last: None,
    ) -> Repair:
        """Walk all rows once; `keep_on` is asked between steps.

        `on_step` hears how far the walk has come: the id that it has reached, and the last one.
        """
        queued = released = 0
        first = _LOWEST
        end: int | None = None
        while keep_on():
            found = self._session.rows("find_id_range", {"from_id": first})
            if not found:
                break
            first, last = found[0]  # gaps in the ids are jumped over
            end = last if end is None else end  # rows that come meanwhile have their triggers
            if first > end:
                break
            step = {"first_id": first, "last_id": min(first + STEP - 1, end)}
            released += self._session.run(
                "reconcile_claims",
                {
                    **step,
                    "error_code": ErrorCode.STUCK_PROCESSING,
                    "error_message": RESCUED_MESSAGE,
                },
            )
            queued += self._session.run("reconcile_queue", step)
            on_step(step["last_id"], end)
            first = step["last_id"] + 1
            if first > end:
                break
        self._session.run("drop_parked")
        adopted = self._session.run("adopt_followers")
        return Repair(queued=queued, released=released, adopted=adopted)

    def recount(self) -> int:
        """Put the counters of SENT and CANCELLED rows and the list of FAILED rows right.

        Returns how many counters and entries were wrong. Stops nobody.
        """
        counters = self._session.run("recount_rows")
        relisted: int = self._session.value("relist_failed")
        return counters + relisted
