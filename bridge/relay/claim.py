"""What every claim has in common: its token, its parameters, its way into the flight."""

from __future__ import annotations

import random
import uuid
from typing import TYPE_CHECKING, Any

from bridge.relay.batch import Batch

if TYPE_CHECKING:
    from bridge.message import ClaimedRow
    from bridge.relay.flight import Flight
    from bridge.relay.registration import Registration
    from bridge.settings import RelaySettings

_FIRST_ROWS = 50
"""Rows of the first claim, while the size of payloads is unknown."""


class Intake:
    """Takes claimed rows into the flight and learns how large they are; the claimer's thread's."""

    def __init__(self, settings: RelaySettings, registration: Registration, flight: Flight) -> None:
        self._settings = settings
        self._registration = registration
        self._flight = flight
        self._row_bytes = 0.0
        self.claimed = 0
        """Rows claimed so far."""

    def parameters(self, claim_id: str) -> dict[str, Any]:
        """Return the parameters that every claim statement has."""
        return {
            "claim_id": claim_id,
            "relay_id": self._registration.relay_id,
            "relay_name": self._settings.name,
            "inline_bytes": self._settings.inline_payload_bytes,
        }

    def enter(self, claim_id: str, claimed: list[Any], started: float) -> None:
        """Put what was claimed into the flight, in id order."""
        if not claimed:
            return
        claimed.sort(key=_outbox_id)
        self.claimed += len(claimed)
        batch = Batch(claim_id, claimed, started)
        average = (batch.payload_bytes + batch.large_bytes) / len(claimed)
        # Follow growth at once and shrinking slowly: one large batch too many costs memory.
        self._row_bytes = max(average, 0.8 * self._row_bytes + 0.2 * average, 1.0)
        self._flight.enter(batch)

    def batch_rows(self) -> int:
        """Return how many rows to claim next: fewer where payloads are large."""
        settings = self._settings
        if not self._row_bytes:
            return min(settings.batch_rows, settings.max_inflight_rows, _FIRST_ROWS)
        fitting = int(settings.max_inflight_bytes / 4 / self._row_bytes)
        return max(1, min(settings.batch_rows, settings.max_inflight_rows, fitting))


def new_claim_id() -> str:
    """Return a random UUID; unlike uuid4 it makes no system call, which would cost a turn."""
    return str(uuid.UUID(int=random.getrandbits(128), version=4))


def without_stale(claimed: list[Any]) -> int:
    """Take the row that tells of stale entries off; returns how many entries were taken in all."""
    if not claimed or claimed[-1][0] is not None:
        return len(claimed)
    stale: int = claimed.pop()[10]
    return len(claimed) + stale


def _outbox_id(row: ClaimedRow) -> int:
    return row[0]
