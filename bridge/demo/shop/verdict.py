"""Whether the shop's numbers add up (pure)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from bridge.demo.verdict import Check

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bridge.demo.shop.figures import ShopFigures

OWN_KILLS = 3
"""Processes that the demo kills itself: a relay and both consumers."""
_KINDS = {"create": 2, "send": 2, "process": 2}
"""Spans of one order: two messages, each created, sent and processed."""


def judge(figures: ShopFigures) -> list[Check]:
    """Return every check; the scenario succeeded only if all of them hold."""
    f = figures
    naive, outbox = f.naive, f.outbox
    return [
        Check(
            "bug",
            "the call inside the transaction charged without an order, and twice",
            f"{naive.charged_without_order:,} and {naive.charged_twice:,}",
            naive.charged_without_order > 0 and naive.charged_twice > 0,
        ),
        _equal("orders", "every accepted order is in the database", f.accepted, outbox.orders),
        Check(
            "rolled_back",
            "of orders that were rolled back nothing is left",
            f"{f.declined:,} rolled back, {f.rolled_back_left:,} left",
            f.declined > 0 and f.rolled_back_left == 0,
        ),
        _equal("sent", "every message of both outboxes is SENT", f.enqueued, f.sent),
        Check("lost", "every message is in its topic", f"{f.lost:,} missing", f.lost == 0),
        Check(
            "charged",
            "with the outbox every order was charged",
            f"{outbox.orders:,} orders, {outbox.charges:,} charges",
            outbox.not_charged == 0 and outbox.orders == outbox.charges > 0,
        ),
        _none("charged_without_order", "charged without order", outbox.charged_without_order),
        _none("charged_twice", "charged twice", outbox.charged_twice),
        _equal("notified", "every customer was told", outbox.orders, outbox.notifications or 0),
        Check(
            "once",
            "nobody was told twice and no payment was noted twice",
            f"{f.notified_twice:,} and {f.paid_twice:,}",
            f.notified_twice == f.paid_twice == 0,
        ),
        Check(
            "duplicates",
            "duplicates came, and had no effect",
            f"{f.records:,} records of {f.messages:,} messages, {f.replayed:,} sent again on "
            "purpose",
            f.duplicates >= f.replayed > 0,
        ),
        Check(
            "late",
            "what was charged and not answered in time was answered from memory",
            f"{f.late_answers:,} late, {f.stored_answers:,} stored answers",
            f.stored_answers >= f.late_answers > 0,
        ),
        Check(
            "kills",
            "processes were killed and started again",
            f"{f.kills:,} times",
            f.kills >= OWN_KILLS,
        ),
        Check(
            "trace",
            "one order can be followed from its transaction to its notification",
            f"{len(f.trace):,} spans",
            is_complete(f.trace),
        ),
        Check(
            "ends",
            "everybody ended in good order",
            ", ".join(f.unclean) or "all of them",
            not f.unclean,
        ),
    ]


def is_complete(span_names: Iterable[str]) -> bool:
    """Tell whether these are the names of a whole trace: each message created, sent, processed."""
    kinds = Counter(name.partition(" ")[0] for name in span_names)
    return all(kinds[kind] >= times for kind, times in _KINDS.items())


def _equal(name: str, claim: str, left: int, right: int) -> Check:
    sign = "=" if left == right else "≠"
    return Check(name, claim, f"{left:,} {sign} {right:,}", left == right)


def _none(name: str, claim: str, count: int) -> Check:
    return Check(name, claim, f"{count:,}", count == 0)
