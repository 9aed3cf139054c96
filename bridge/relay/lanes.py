"""Which lanes of ordered rows this relay owns, and how they move between relays."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from bridge.database.session import Session
    from bridge.relay.flight import Flight
    from bridge.relay.registration import Registration

LANES = 64
"""Number of lanes, fixed by the schema."""

BALANCE_INTERVAL = 1.0
"""Seconds between two looks at the shares."""


class Lanes:
    """The lanes of one relay; used by its claimer thread alone.

    Each relay owns an equal share. A lane that must go is first left alone until none of its rows
    is in flight, then freed; so at every moment all rows of a key are in the hands of one relay.
    """

    def __init__(
        self, session: Session, registration: Registration, flight: Flight, duty_class: int
    ) -> None:
        self._session = session
        self._registration = registration
        self._flight = flight
        self._duty = {"duty_class": duty_class}
        self._owned: list[int] = []
        self._leaving: set[int] = set()
        self._relay_id = 0
        self._next = 0.0
        self._log = structlog.get_logger("bridge.relay.lanes")

    def active(self) -> list[int]:
        """Return the lanes to claim from, after balancing the shares when it is time."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + BALANCE_INTERVAL
            self._balance()
        return [lane for lane in self._owned if lane not in self._leaving]

    def _balance(self) -> None:
        if self._relay_id != self._registration.relay_id:
            self._relay_id = self._registration.relay_id
            self._owned, self._leaving = [], set()
        self._session.in_transaction(self._share)

    def _share(self) -> None:
        session = self._session
        if not session.rows("lock_leader", self._duty)[0][0]:
            # Somebody else is balancing this very moment; a newcomer asks again at the next look.
            self._next = 0.0 if not self._owned else self._next
            return
        relays, owned, free = session.rows("find_lane_share", {"relay_id": self._relay_id})[0]
        share = -(-LANES // max(1, relays))
        self._owned = list(owned)
        surplus = len(owned) - share
        self._leaving = set(owned[-surplus:]) if surplus > 0 else set()
        idle = [lane for lane in self._leaving if lane not in self._flight.lanes_in_flight()]
        if idle:
            session.run("free_lanes", {"lanes": idle, "relay_id": self._relay_id})
            self._owned = [lane for lane in self._owned if lane not in idle]
            self._leaving.difference_update(idle)
        wanted = free[: max(0, share - len(self._owned))]
        if wanted:
            taken = session.rows("take_lanes", {"lanes": wanted, "relay_id": self._relay_id})
            self._owned.extend(lane for (lane,) in taken)
