"""How many messages each act of the demo gets, and how fast they are written (pure)."""

from __future__ import annotations

from dataclasses import dataclass

_BACKLOG_SHARE = 0.55
_RUSH_SHARE = 0.2
_RUSH_SECONDS = 4.0
_STEADY_RATE = 300.0
_STEADY_SECONDS = 10.0
_SHORTEST_STEADY_SECONDS = 2.0
_IMPORTS_A_SECOND = 2.0
_IMPORT_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Plan:
    """Messages of the three acts that write; their sum is what was asked for.

    Rates are messages a second, 0 for as fast as possible. During the rush about half of the
    messages come by imports: transactions of `import_orders` orders each.
    """

    backlog: int
    rush: int
    steady: int
    rush_rate: float
    steady_rate: float
    import_orders: int

    @classmethod
    def of(cls, messages: int) -> Plan:
        """Divide `messages`; the steady act is bounded, so a large number grows the backlog."""
        rush = round(messages * _RUSH_SHARE)
        steady = messages - rush - round(messages * _BACKLOG_SHARE)
        steady = min(steady, round(_STEADY_RATE * _STEADY_SECONDS))
        rush_rate = rush / _RUSH_SECONDS
        return cls(
            backlog=messages - rush - steady,
            rush=rush,
            steady=steady,
            rush_rate=rush_rate,
            steady_rate=min(_STEADY_RATE, max(1.0, steady / _SHORTEST_STEADY_SECONDS)),
            import_orders=max(1, round(rush_rate * _IMPORT_SHARE / _IMPORTS_A_SECOND)),
        )
