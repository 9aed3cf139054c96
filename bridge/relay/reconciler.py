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


@dataclass(frozen=True, slots=True)
class Repair:
    """What one pass put right, in rows."""

    queued: int = 0
    """PENDING rows that had no queue entry."""
    released: int = 0
    """PROCESSING rows that had no claim."""


class Reconciler:
    """Walks the outbox by id and puts the side tables right.

    Needed after a restore, since `session_replication_role = replica` skips triggers; otherwise it
    finds nothing.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def reconcile(self, keep_on: Callable[[], bool] = lambda: True) -> Repair:
        """Walk all rows once; `keep_on` is asked between steps."""
        first, last = self._session.rows("find_id_range")[0]
        queued = released = 0
        while first <= last and keep_on():
            step = {"first_id": first, "last_id": first + STEP - 1}
            released += self._session.run(
                "reconcile_claims",
                {
                    **step,
                    "error_code": ErrorCode.STUCK_PROCESSING,
                    "error_message": RESCUED_MESSAGE,
                },
            )
            queued += self._session.run("reconcile_queue", step)
            first += STEP
        return Repair(queued=queued, released=released)

    def recount(self) -> None:
        """Count SENT and CANCELLED rows and list FAILED rows anew, in one transaction.

        The counter and the list are locked against writers meanwhile.
        """

        def recount() -> None:
            self._session.run("lock_counters")
            self._session.run("recount")

        self._session.in_transaction(recount)
