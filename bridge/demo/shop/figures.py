"""Everything the shop counted, each figure from its own source (pure)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """What one way of taking orders came to; `notifications` is None where it sends none."""

    orders: int
    """Orders in the shop's database."""
    charges: int
    """Charges in the payment API's."""
    notifications: int | None
    charged_without_order: int
    """Charges for an order that the shop does not have."""
    charged_twice: int
    """Orders, or what should have been some, that were charged more often than once."""
    not_charged: int
    """Orders that nobody paid."""


def way_of(
    orders: Collection[str], charges: Iterable[str], notifications: int | None = None
) -> Way:
    """Compare the ids of orders with the order id of each charge."""
    times = Counter(charges)
    known = set(orders)
    return Way(
        orders=len(orders),
        charges=times.total(),
        notifications=notifications,
        charged_without_order=sum(count for order, count in times.items() if order not in known),
        charged_twice=sum(count > 1 for count in times.values()),
        not_charged=sum(order not in times for order in known),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShopFigures:
    """The scenario's numbers. Those of `topics` are counted from the records themselves."""

    broker: str
    is_real_kafka: bool
    database: str
    naive: Way
    outbox: Way
    accepted: int
    """Orders that customers of the outbox way were told are accepted."""
    declined: int
    """Orders that failed after their message was enqueued, and were rolled back."""
    rolled_back_left: int
    """Traces of these in the shop's tables, outbox, or among the charges: none may be."""
    enqueued: int
    """Rows of the shop's outbox and of the payment service's."""
    sent: int
    """How many of these are SENT."""
    records: int
    """Records in both topics."""
    messages: int
    """Different keys among them."""
    lost: int
    """Rows of the outboxes whose key is not in the topic."""
    replayed: int
    """Messages that the demo had sent once more."""
    notified_twice: int
    """Orders whose customer was told more often than once."""
    paid_twice: int
    """Orders that the payment service noted more often than once."""
    stored_answers: int
    """Requests that the payment API answered from its memory instead of charging again."""
    late_answers: int
    """Charges that the payment API made and did not answer in time, with the outbox."""
    asked_again: int
    """Requests that customers had to repeat."""
    kills: int
    """Processes that were killed, by the demo or by whomever else."""
    unclean: tuple[str, ...]
    """Processes that did not end in good order when asked to."""
    trace: tuple[str, ...]
    """Names of the spans of one order's trace."""
    seconds: float

    @property
    def duplicates(self) -> int:
        """Records that came more often than once."""
        return self.records - self.messages
