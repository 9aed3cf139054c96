"""Reads single rows anew: payloads too large to travel with their claim, and records in doubt."""

from __future__ import annotations

import threading

from bridge.database.session import PASSING, ConnectionLost, Session
from bridge.message import ClaimedRow

_REFUSED_WAIT = 1.0


class Payloads:
    """The publisher's own connection; used by its thread alone.

    `end` may be called from any thread: a read that waits for the database gives up.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._done = threading.Event()

    def end(self) -> None:
        """Wait for nothing any more."""
        self._done.set()

    def fetch(self, outbox_id: int, claim_id: str) -> ClaimedRow | None:
        """Read a claimed row anew; None where somebody else claimed, edited or cancelled it."""
        parameters = {"outbox_id": outbox_id, "claim_id": claim_id}
        while True:
            try:
                rows = self._session.rows("fetch_row", parameters)
            except ConnectionLost:
                if not self._session.reopen(self._done):
                    return None
            except PASSING:
                if self._done.wait(_REFUSED_WAIT):
                    return None
            else:
                return ClaimedRow(*rows[0]) if rows else None
