"""What the consumer received, record by record, and what can be told from it (pure)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Receipt(NamedTuple):
    """One record as it came; `message_key` is its idempotency key.

    `ordering_key` is None for records that ask for no order. `received_ns` is the machine's clock
    when the record was handed to the consumer, in nanoseconds since the epoch.
    """

    topic: str
    partition: int
    offset: int
    outbox_id: int
    message_key: str
    ordering_key: str | None
    received_ns: int


def receipts_of(rows: Iterable[Sequence[Any]]) -> list[Receipt]:
    """Read receipts back from plain rows, such as JSON arrays."""
    return [Receipt(*row) for row in rows]


def repeated_ids(receipts: Iterable[Receipt]) -> list[int]:
    """Return the outbox_id of each record whose key had come before: the duplicates."""
    seen: set[str] = set()
    repeated: list[int] = []
    for receipt in receipts:
        if receipt.message_key in seen:
            repeated.append(receipt.outbox_id)
        seen.add(receipt.message_key)
    return repeated


def count_inversions(receipts: Iterable[Receipt]) -> int:
    """Count first occurrences that stand behind a later row of the same ordering key.

    Per topic and ordering key the first occurrences must stand in the order of outbox_id. Records
    of one key in two partitions have no order at all, so each change of partition counts too.
    """
    first: set[tuple[str, str]] = set()
    last: dict[tuple[str, str], tuple[int, int]] = {}
    inversions = 0
    for receipt in sorted(receipts, key=lambda r: (r.topic, r.partition, r.offset)):
        if receipt.ordering_key is None:
            continue
        occurrence = (receipt.topic, receipt.message_key)
        if occurrence in first:
            continue
        first.add(occurrence)
        key = (receipt.topic, receipt.ordering_key)
        partition, highest = last.get(key, (receipt.partition, 0))
        if receipt.partition != partition or receipt.outbox_id < highest:
            inversions += 1
        last[key] = (receipt.partition, max(highest, receipt.outbox_id))
    return inversions


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the value that `share` of the values do not exceed; None where there are none."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(share * len(ordered)) - 1))]
