"""Reads single rows anew: payloads too large to travel with their claim, and records in doubt."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import structlog

from bridge.database.connection import first_line
from bridge.database.session import PASSING, ConnectionLost, Session

if TYPE_CHECKING:
    from bridge.message import ClaimedRow

_REFUSED_WAIT = 1.0


class Payloads:
    """The publisher's own connection; used by its thread alone.

    `end` may be called from any thread: a read that waits for the database gives up.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._done = threading.Event()
        self._log = structlog.get_logger("bridge.relay.publisher")

    def end(self) -> None:
        """Wait for nothing any more."""
        self._done.set()

    def fetch(self, outbox_id: int, claim_id: str) -> ClaimedRow | None:
        """Read a claimed row anew; None where somebody else claimed, edited or cancelled it."""
        parameters = {"outbox_id": outbox_id, "claim_id": claim_id}
        while True:
            try:
                rows = self._session.rows("fetch_row", parameters)
            except ConnectionLost as error:
                self._log.warning("database connection lost", reason=str(error))
                if not self._session.reopen(self._done, self._told):
                    return None
                self._log.info("database connection back")
            except PASSING as error:
                self._log.warning("payload refused, tried again", reason=first_line(error))
                if self._done.wait(_REFUSED_WAIT):
                    return None
            else:
                return rows[0] if rows else None

    def _told(self, error: Exception) -> None:
        self._log.warning("database unreachable for payloads", reason=str(error))
