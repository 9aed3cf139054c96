"""What each destination has in flight, and when it last moved."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from bridge.relay.batch import Batch


@dataclass(slots=True)
class Account:
    """One destination's rows between claim and settled outcome.

    `awaited`: rows of which Kafka has not reported yet. `moved_at`: monotonic time of its last
    report, or of the first row after none was awaited. `set_aside`: rows known to wait for a
    partition that does not move; they do not count against the budgets, so that the rest does.
    """

    rows: int = 0
    awaited: int = 0
    moved_at: float = 0.0
    set_aside: int = 0


class Accounts:
    """The accounts of all destinations that have rows in flight; guarded by the flight's lock."""

    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}
        self.set_aside = 0

    def find(self, destination: str) -> Account:
        """Return a destination's account; an empty one where nothing is in flight."""
        return self._accounts.get(destination) or Account()

    def items(self) -> list[tuple[str, Account]]:
        """Return all accounts by destination."""
        return list(self._accounts.items())

    def enter(self, destinations: Counter[str]) -> None:
        """Add claimed rows."""
        for name, rows in destinations.items():
            account = self._accounts.setdefault(name, Account())
            if not account.awaited:
                account.moved_at = time.monotonic()
            account.rows += rows
            account.awaited += rows

    def report(self, destinations: Counter[str]) -> None:
        """Note that Kafka's word on so many rows has come."""
        now = time.monotonic()
        for name, rows in destinations.items():
            account = self._accounts.get(name)
            if account is not None:
                account.awaited -= rows
                account.moved_at = now

    def leave(self, destinations: Counter[str]) -> None:
        """Take settled rows out."""
        for name, rows in destinations.items():
            account = self._accounts.get(name)
            if account is None:
                continue
            account.rows -= rows
            if account.set_aside > account.rows:
                self.set_aside -= account.set_aside - account.rows
                account.set_aside = account.rows
            if account.rows <= 0:
                del self._accounts[name]

    def put_aside(self, destination: str, most: int) -> None:
        """Count what a destination has in flight now as set aside, at most `most` over all."""
        account = self._accounts.get(destination)
        if account is not None:
            room = max(0, most - self.set_aside + account.set_aside)
            rows = min(account.awaited, room)
            self.set_aside += rows - account.set_aside
            account.set_aside = rows


def by_destination(batches: Counter[Batch], items: Collection[tuple[int, Batch]]) -> Counter[str]:
    """Count rows by destination; `items` are looked at only for batches of several."""
    found: Counter[str] = Counter()
    mixed = False
    for batch, rows in batches.items():
        if batch.destination is not None:
            found[batch.destination] += rows
        else:
            mixed = True
    if mixed:
        found.update(
            batch.destination_of[outbox_id]
            for outbox_id, batch in items
            if batch.destination is None
        )
    return found
