"""Counts of what a relay process did."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class RelayReport:
    """What one run did, in rows. Each field has one writing thread."""

    sent: int = 0
    """Marked SENT after the broker's acknowledgement."""
    retried: int = 0
    """Given back for a later attempt, charged."""
    failed: int = 0
    """Ended FAILED: refused, or out of attempts."""
    released: int = 0
    """Given back uncharged, certainly not sent."""
    lost_leases: int = 0
    """Reports whose row had meanwhile been claimed, edited or cancelled by somebody else."""
    rescued: int = 0
    """Taken back from dead, frozen or hung relays."""
    later: int = 0
    """Still waiting for a later time when the run ended."""
    forced: bool = False
    """The run was cut short: a second signal, or the drain time-out."""

    def as_dict(self) -> dict[str, int | bool]:
        """Return the fields by name."""
        return asdict(self)
