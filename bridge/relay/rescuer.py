"""Takes back the claims of relays that are dead, frozen or hung."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import structlog

from bridge.database.arrays import array
from bridge.database.template import advisory_class
from bridge.lifecycle import ErrorCode
from bridge.relay.orphans import take_claim_back

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from bridge.database.session import Session
    from bridge.relay.registration import Registration
    from bridge.relay.tally import RelayReport
    from bridge.settings import Settings

GRACE = 2.0
"""Seconds that a lock must stay free: a relay that lost its connection takes it up again."""


class Rescuer:
    """Finds relays that cannot settle their claims any more and makes their rows PENDING again.

    Killed: the session lock of the relay's heartbeat connection is free. Frozen, or dead behind a
    transaction pooler, where it has no such lock: no heartbeat for the lease. Hung: a claim older
    than the stuck time-out. All uncharged, all by the database's clock; a late acknowledgement
    still counts until somebody else claims the row. The death counts against the rows: from the
    second on a row is claimed alone, and one with which relay after relay died alone is FAILED as
    POISON.
    """

    def __init__(
        self,
        settings: Settings,
        session: Session,
        registration: Registration,
        report: RelayReport,
        on_rescued: Callable[[], None] = lambda: None,
    ) -> None:
        self._session = session
        self._registration = registration
        self._report = report
        self._on_rescued = on_rescued
        self._stuck_timeout = settings.relay.stuck_timeout
        self._max_claims = settings.relay.max_claims
        self._router = settings.router()
        self._class = advisory_class("relay", settings.database.schema_name)
        self._free_since: dict[int, float] = {}
        self._log = structlog.get_logger("bridge.relay.rescuer")

    def rescue(self) -> None:
        """Look once at all other relays and at old claims; `on_rescued` hears of any rows."""
        before = self._report.rescued
        found = self._session.rows("find_relays", {"relay_id": self._registration.relay_id})
        seen: set[int] = set()
        for relay_id, name, silent, lease, has_lock in found:
            if relay_id == self._registration.relay_id:
                continue
            seen.add(relay_id)
            self._session.in_transaction(
                partial(self._examine, relay_id, name, silent, lease, has_lock=has_lock)
            )
        self._free_since = {k: v for k, v in self._free_since.items() if k in seen}
        self._rescue_stuck()
        if self._report.rescued > before:
            self._on_rescued()

    def _examine(
        self, relay_id: int, name: str, silent: float, lease: int, *, has_lock: bool
    ) -> None:
        key = {"relay_class": self._class, "relay_id": relay_id}
        # Behind a transaction pooler a relay has no lock: a free one says nothing about it.
        if has_lock and self._session.rows("try_relay_lock", key)[0][0]:
            since = self._free_since.setdefault(relay_id, time.monotonic())
            if time.monotonic() - since < GRACE:
                return
            why = "killed"
        else:
            self._free_since.pop(relay_id, None)
            if silent < lease:
                return
            why = "frozen" if has_lock else "silent"
        self._session.rows("lock_lanes", {"relay_id": relay_id})
        rescued = self._take_back({"relay_id": relay_id, "stuck_seconds": None})
        self._session.run("bury_relay", {"relay_id": relay_id})
        self._log.warning("relay is gone", relay=name, relay_id=relay_id, why=why, rescued=rescued)

    def _rescue_stuck(self) -> None:
        rescued = self._take_back({"relay_id": None, "stuck_seconds": self._stuck_timeout})
        if rescued:
            self._log.warning("claims were older than the stuck time-out", rescued=rescued)

    def _take_back(self, which: dict[str, float | int | None]) -> int:
        rescued = 0
        for (claim_id,) in self._session.rows("find_claims", which):
            rescued += self._session.in_transaction(lambda claim_id=claim_id: self._end(claim_id))  # type: ignore[misc]  # bound per turn
        self._report.rescued += rescued
        return rescued

    def _end(self, claim_id: UUID) -> int:
        """Count the death against the claim's rows and take back what may be sent again."""
        poisoned = self._session.rows(
            "count_deaths",
            {
                "claim_id": claim_id,
                "max_claims": self._max_claims,
                "error_code": ErrorCode.POISON,
                "held_code": ErrorCode.STUCK_PROCESSING,
            },
        )
        skipped = [row for row, destination in poisoned if not self._router.blocks(destination)]
        if skipped:
            self._session.run("release_holds", {"outbox_ids": array(skipped)})
        for outbox_id, destination in poisoned:
            self._log.error(
                "poison: relay after relay died with this row alone, it is FAILED",
                outbox_id=outbox_id,
                destination=destination,
            )
        return take_claim_back(self._session, claim_id)
