"""The shop's counts of this moment, for the screen."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class ShopProgress:
    """`total` is where orders, charges and notifications will end, with the outbox."""

    total: int = 0
    orders: int = 0
    charges: int = 0
    notifications: int = 0
    members: dict[str, str] = field(default_factory=dict)

    def bars(self) -> list[tuple[str, int]]:
        """Return what has been done of the whole."""
        return [
            ("orders", self.orders),
            ("charges", self.charges),
            ("notifications", self.notifications),
        ]

    def others(self) -> list[tuple[str, int]]:
        """Return nothing: everything here has an end."""
        return []

    def states(self) -> tuple[str, dict[str, str]]:
        """Return how many processes are up, and the state of each other one."""
        up = sum(state == "up" for state in self.members.values())
        others = {name: state for name, state in self.members.items() if state != "up"}
        return "processes", {str(up): "up", **others}
