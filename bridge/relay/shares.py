"""How many rows of each destination a claim may take: breakers, budgets and run-time switches."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.message import ClaimedRow
    from bridge.relay.admission import Admission
    from bridge.relay.controls import Controls


class Shares:
    """Joins what this relay knows of Kafka with what operators have switched.

    Used by the claimer's thread alone. A rate limit counts what a claim may take when it is asked;
    what the claim did not find is given back.
    """

    def __init__(self, admission: Admission, controls: Controls) -> None:
        self._admission = admission
        self._controls = controls

    def open(self, destinations: Sequence[str]) -> list[str]:
        """Return those that no switch closes."""
        if not self._controls.any:
            return list(destinations)
        return [name for name in destinations if not self._controls.switch(name).closed]

    def admit(self, quotas: dict[str, int]) -> dict[str, int]:
        """Return how many rows of each may be claimed; those that give none now are left out."""
        limits = self._admission.limits(quotas)
        admitted = {name: min(quotas[name], limit) for name, limit in limits.items()}
        if self._controls.any:
            for name, rows in list(admitted.items()):
                most = self._controls.switch(name).batch_rows
                taken = self._controls.take(name, rows if most is None else min(rows, most))
                admitted[name] = taken
        return {name: rows for name, rows in admitted.items() if rows}

    def give_back(self, admitted: dict[str, int], claimed: Sequence[ClaimedRow]) -> None:
        """Give the rate limits back what the claim did not find."""
        if self._controls.any:
            used = Counter(row[1] for row in claimed)
            for name, rows in admitted.items():
                self._controls.give_back(name, rows - used[name])

    def shut(self) -> list[str] | None:
        """Return the destinations to leave alone, by name; None: all of them."""
        if self._admission.outage.is_set():
            return None
        by_default, exceptions = self._controls.closed_by_default()
        if by_default:
            return None
        return [*exceptions, *self._admission.failing()]
