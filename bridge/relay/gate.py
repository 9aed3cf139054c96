"""How a relay sleeps without costing busy writers anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading

    from bridge.database.session import Session

_SLICE = 0.2


class Gate:
    """A relay that sleeps holds an advisory lock exclusively; only then do writers send NOTIFY.

    The insert trigger tries the same lock shared, for its transaction. So a relay that cannot have
    it knows that a writer is open or another relay sleeps, and goes on looking; a relay that has it
    cannot miss a commit: whoever commits later was refused the lock and notifies. Behind a
    transaction pooler there is neither the lock nor LISTEN: the relay goes on looking.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def close_gate(self) -> bool:
        """Try to take the lock; never waits."""
        if self._session.is_pooled:
            return False
        return bool(self._session.rows("try_gate")[0][0])

    def open_gate(self) -> None:
        """Give the lock back."""
        self._session.rows("open_gate")

    def wait(self, timeout: float, stop: threading.Event, changed: threading.Event) -> bool:
        """Wait for a notification; False after `timeout` seconds, or when `stop` is set.

        True as well when `changed` is set: something that was known to wait may go on.
        """
        remaining = timeout
        while remaining > 0 and not stop.is_set():
            if changed.is_set():
                return True
            if self._session.notified(min(_SLICE, remaining)):
                return True
            remaining -= _SLICE
        return False
