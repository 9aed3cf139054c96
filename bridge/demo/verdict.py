"""Whether nothing was lost and every number adds up (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.demo.figures import Figures


@dataclass(frozen=True, slots=True)
class Check:
    """One sum: what it says when it holds, and the two sides as they were counted."""

    name: str
    claim: str
    counted: str
    holds: bool

    @property
    def text(self) -> str:
        """The sum with its numbers, for people."""
        return f"{self.claim} ({self.counted})"


def judge(figures: Figures) -> list[Check]:
    """Return every check; the demo succeeded only if all of them hold."""
    f = figures
    return [
        _equal(
            "enqueued",
            "the business rows imply as many messages as were enqueued",
            f.order_events,
            f.enqueued,
        ),
        _equal("sent", "every enqueued message is SENT", f.enqueued, f.sent),
        _equal("received", "every SENT message was received", f.sent, f.received_distinct),
        _none("lost", "nothing was lost", f.lost),
        _none("phantoms", "nothing was received that was never committed", f.phantoms),
        _check(
            "rolled_back",
            "nothing of what was rolled back is left",
            f"of {f.rolled_back:,}: {f.rolled_back_enqueued:,} in the outbox, "
            f"{f.rolled_back_received:,} received",
            f.rolled_back > 0 and f.rolled_back_enqueued == 0 and f.rolled_back_received == 0,
        ),
        _check(
            "absorbed",
            "everything enqueued twice was absorbed",
            f"{f.enqueued_twice:,} and {f.absorbed:,}",
            f.enqueued_twice == f.absorbed > 0,
        ),
        _equal(
            "records",
            "the consumer read every record in the topics",
            f.records_in_topics,
            f.received,
        ),
        _check(
            "duplicates",
            "records = messages + duplicates",
            f"{f.received:,} and {f.received_distinct:,} + {f.duplicates:,}",
            f.received == f.received_distinct + f.duplicates,
        ),
        _check(
            "duplicates_in_flight",
            "only rows in flight at the kill came twice",
            f"{f.duplicates:,} of {f.in_flight_at_kill:,}, {f.stray_duplicates:,} others",
            f.duplicates <= f.in_flight_at_kill and f.stray_duplicates == 0,
        ),
        _check(
            "processed",
            "the consumer applied each message once",
            f"{f.received_distinct:,} received, {f.processed:,} keys, {f.handled:,} applied",
            f.received_distinct == f.processed == f.handled,
        ),
        _check(
            "inversions",
            "no message overtook another of its order",
            f"{f.inversions:,} of {f.ordered:,}",
            f.inversions == 0 and f.ordered > 0,
        ),
        _check(
            "rescued",
            "all rows of the killed relay were taken back",
            f"{f.rescued:,} of {f.in_flight_at_kill:,} in flight",
            f.kills > 0 and f.rescued == f.in_flight_at_kill > 0,
        ),
        _check(
            "relays",
            "the other relays ended in good order",
            ", ".join(f.unclean_relays) or "all of them",
            not f.unclean_relays,
        ),
        _check(
            "measured",
            "the latency was measured",
            f"{f.latency_messages:,} messages",
            None not in (f.latency_p50_ms, f.latency_p99_ms),
        ),
    ]


def failed(checks: list[Check]) -> list[Check]:
    """Return the checks that do not hold."""
    return [check for check in checks if not check.holds]


def _check(name: str, claim: str, counted: str, holds: bool) -> Check:  # noqa: FBT001 - the outcome is its last word
    return Check(name, claim, counted, holds)


def _equal(name: str, claim: str, left: int, right: int) -> Check:
    sign = "=" if left == right else "≠"
    return Check(name, claim, f"{left:,} {sign} {right:,}", left == right)


def _none(name: str, claim: str, count: int) -> Check:
    return Check(name, claim, f"{count:,}", count == 0)
