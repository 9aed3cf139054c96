"""What must hold after each round: ledger, table and topics are put side by side."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.fixtures.relays import ids_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tests.crash.chaos.ledger import Ledger
    from tests.fixtures.kafka import ReceivedRecord
    from tests.fixtures.relays import Row

_SHOWN = 5


@dataclass
class Reckoning:
    """The figures of one round; `problems` says in words what must not be."""

    rows: int = 0
    records: int = 0
    duplicates: int = 0
    bound: int = 0
    lost: int = 0
    out_of_order: int = 0
    charged: int = 0
    without_offset: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether every invariant holds."""
        return not self.problems

    def find(self, what: str, found: Collection[object]) -> int:
        """Note a problem where anything was found; returns how much."""
        if found:
            some = ", ".join(str(one) for one in list(found)[:_SHOWN])
            more = f" … ({len(found)} in all)" if len(found) > _SHOWN else ""
            self.problems.append(f"{what}: {some}{more}")
        return len(found)


def reckon(
    ledger: Ledger,
    rows: Sequence[Row],
    records: Sequence[ReceivedRecord],
    in_flight: Collection[int],
) -> Reckoning:
    """Compare what was written, what the table says and what stands in the topics.

    `rows` and `records` are those of one round, `in_flight` the rows that its fault found in
    flight. Call it when nothing is due or in flight any more.
    """
    result = Reckoning(rows=len(rows), records=len(records), bound=len(in_flight))
    _check_sum(result, ledger, rows)
    _check_places(result, rows, records)
    _check_phantoms(result, ledger, rows, records)
    _check_duplicates(result, records, in_flight)
    _check_order(result, records)
    charged = [
        f"row {row.outbox_id} ({row.retry_count}, {row.last_error_code})"
        for row in rows
        if row.retry_count and row.message_key not in ledger.hopeless
    ]
    result.charged = result.find("charged for a fault that is not the message's", charged)
    return result


def _check_sum(result: Reckoning, ledger: Ledger, rows: Sequence[Row]) -> None:
    """Committed rows = SENT + FAILED + CANCELLED + waiting for later."""
    by_key = {row.message_key: row for row in rows}
    gone = ledger.committed - by_key.keys()
    result.lost += result.find("committed, but there is no row", gone)
    strange = by_key.keys() - ledger.committed - ledger.unknown
    result.find("never committed, but there is a row", strange)
    unsettled = [
        f"row {row.outbox_id} is {row.status}"
        for row in rows
        if row.status == "PROCESSING" or (row.status == "PENDING" and row.wait_seconds <= 0)
    ]
    result.find("stuck", unsettled)
    expected: dict[str, str] = {
        **dict.fromkeys(ledger.hopeless, "FAILED"),
        **dict.fromkeys(ledger.withdrawn, "CANCELLED"),
    }
    wrong = [
        f"row {row.outbox_id} is {row.status} ({row.last_error_code})"
        for row in rows
        if row.status in {"FAILED", "CANCELLED"}
        and expected.get(row.message_key) != row.status
        # A commit without answer may have withdrawn it.
        and not (row.status == "CANCELLED" and ledger.unknown)
        and not (row.status == "FAILED" and row.message_key in ledger.unknown)
    ]
    result.find("ended wrongly", wrong)


def _check_places(
    result: Reckoning, rows: Sequence[Row], records: Sequence[ReceivedRecord]
) -> None:
    """Each SENT row stands where it says; without an offset at least in its partition."""
    by_place = {(record.topic, record.partition, record.offset): record for record in records}
    in_partition = {
        (record.topic, record.partition, record.headers["outbox-id"]) for record in records
    }
    misplaced: list[str] = []
    for row in rows:
        if row.status != "SENT":
            continue
        topic, partition, offset = row.place
        if offset < 0:
            # Where the broker recognised a repeated batch, it tells no offset.
            result.without_offset += 1
            if (topic, partition, str(row.outbox_id)) not in in_partition:
                misplaced.append(f"row {row.outbox_id} in {topic}/{partition}")
            continue
        record = by_place.get(row.place)
        if (
            record is None
            or record.headers["outbox-id"] != str(row.outbox_id)
            or record.headers["idempotency-key"] != row.message_key
            or record.key != (row.ordering_key or row.message_key).encode()
        ):
            misplaced.append(f"row {row.outbox_id} at {topic}/{partition}/{offset}")
    result.lost += result.find("SENT, but not where the row says", misplaced)


def _check_phantoms(
    result: Reckoning, ledger: Ledger, rows: Sequence[Row], records: Sequence[ReceivedRecord]
) -> None:
    """Nothing in a topic that was rolled back, withdrawn, or that is not of a SENT row."""
    sent = {row.message_key for row in rows if row.status == "SENT"}
    keys = {record.headers["idempotency-key"] for record in records}
    result.find("rolled back, but in a topic", keys & ledger.rolled_back)
    result.find("withdrawn, but in a topic", keys & ledger.withdrawn)
    result.find("in a topic, but not SENT", keys - sent - ledger.rolled_back - ledger.withdrawn)


def _check_duplicates(
    result: Reckoning, records: Sequence[ReceivedRecord], in_flight: Collection[int]
) -> None:
    copies = Counter(ids_of(records))
    repeated = {outbox_id: count - 1 for outbox_id, count in copies.items() if count > 1}
    result.duplicates = sum(repeated.values())
    result.find("sent twice, but not in flight at the fault", repeated.keys() - set(in_flight))
    if result.duplicates > result.bound:
        result.problems.append(
            f"{result.duplicates} duplicates, but only {result.bound} rows were in flight"
        )


def _check_order(result: Reckoning, records: Sequence[ReceivedRecord]) -> None:
    """First occurrences of a key stand in the order of outbox_id, in one partition."""
    latest: dict[tuple[str, bytes | None], int] = {}
    partitions: dict[tuple[str, bytes | None], set[int]] = defaultdict(set)
    seen: set[int] = set()
    wrong: list[str] = []
    for record in sorted(records, key=lambda one: (one.topic, one.partition, one.offset)):
        outbox_id = int(record.headers["outbox-id"])
        if outbox_id in seen:
            continue
        seen.add(outbox_id)
        key = (record.topic, record.key)
        partitions[key].add(record.partition)
        if outbox_id < latest.get(key, 0):
            wrong.append(
                f"row {outbox_id} behind {latest[key]} at "
                f"{record.topic}/{record.partition}/{record.offset}"
            )
        latest[key] = max(outbox_id, latest.get(key, 0))
    result.out_of_order = result.find("out of order", wrong)
    result.find(
        "in several partitions", [key for key, found in partitions.items() if len(found) > 1]
    )
