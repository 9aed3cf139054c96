"""Claims that nobody works on: of relays that died, and of this one, lost with a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.database.template import advisory_class
from bridge.lifecycle import RESCUED_MESSAGE, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection
    from uuid import UUID

    from bridge.database.session import Session
    from bridge.relay.registration import Registration


class Orphans:
    """Looks for such claims through the claimer's session."""

    def __init__(self, session: Session, registration: Registration) -> None:
        self._session = session
        self._registration = registration

    def any_waits(self) -> bool:
        """Tell whether any claim belongs to a relay that is gone and waits to be taken back."""
        waits: bool = self._session.value(
            "find_orphans",
            {
                "relay_id": self._registration.relay_id,
                "relay_class": advisory_class("relay", self._session.schema),
            },
        )
        return waits

    def give_back_unknown(self, known: Collection[str]) -> None:
        """Give back, uncharged, claims of this relay whose answer never came.

        `known`: the claims that it has in flight.
        """
        relay_id = self._registration.relay_id
        for (claim_id,) in self._session.rows(
            "find_claims", {"relay_id": relay_id, "stuck_seconds": 0}
        ):
            if str(claim_id) not in known:
                take_claim_back(self._session, claim_id)


def take_claim_back(session: Session, claim_id: UUID | str) -> int:
    """Make the rows of a claim PENDING again, uncharged; returns how many came back."""
    back: int = session.rows(
        "rescue_claim",
        {
            "claim_id": claim_id,
            "error_code": ErrorCode.STUCK_PROCESSING,
            "error_message": RESCUED_MESSAGE,
        },
    )[0][0]
    return back
