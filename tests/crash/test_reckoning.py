"""The reckoning of the chaos suite finds each broken invariant, and nothing in a good round."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.crash.chaos.ledger import Ledger
from tests.crash.chaos.reckoning import reckon
from tests.fixtures.kafka import ReceivedRecord
from tests.fixtures.relays import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TOPIC = "orders"


def row(number: int) -> Row:
    return Row(
        outbox_id=number,
        status="SENT",
        message_key=f"m-{number}",
        destination=TOPIC,
        ordering_key="k",
        retry_count=0,
        claim_count=1,
        claim_id=None,
        locked_by=None,
        last_error_code=None,
        last_error_msg=None,
        sent_topic=None,
        sent_partition=0,
        sent_offset=number - 1,
        sent_at=None,
        wait_seconds=-1,
    )


def record(number: int, offset: int, key: str | None = None) -> ReceivedRecord:
    headers = {"outbox-id": str(number), "idempotency-key": key or f"m-{number}"}
    return ReceivedRecord(TOPIC, 0, offset, b"k", b"{}", headers, 0)


class Round:
    """Ten committed rows, all sent in order; each test spoils one thing."""

    def __init__(self) -> None:
        self.ledger = Ledger(committed={f"m-{n}" for n in range(1, 11)}, rolled_back={"undone"})
        self.rows: list[Row] = [row(n) for n in range(1, 11)]
        self.records: list[ReceivedRecord] = [record(n, n - 1) for n in range(1, 11)]
        self.in_flight: set[int] = set()

    def problems(self) -> Sequence[str]:
        return reckon(self.ledger, self.rows, self.records, self.in_flight).problems

    def change(self, index: int, **values: object) -> None:
        self.rows[index] = replace(self.rows[index], **values)  # type: ignore[arg-type] # a test's own


def test_a_good_round_has_no_problem() -> None:
    assert Round().problems() == []


def test_a_duplicate_of_what_was_in_flight_is_within_the_bound() -> None:
    played = Round()
    played.records.append(record(3, 10))
    played.in_flight = {3}
    assert played.problems() == []


def test_an_unknown_offset_is_enough_where_the_record_is_in_its_partition() -> None:
    played = Round()
    played.change(4, sent_offset=-1)
    assert played.problems() == []


def test_scheduled_withdrawn_and_hopeless_rows_are_what_they_should_be() -> None:
    played = Round()
    for number, status, wait in ((11, "PENDING", 3600), (12, "CANCELLED", 0), (13, "FAILED", 0)):
        played.rows.append(replace(row(number), status=status, wait_seconds=wait))
        played.ledger.committed.add(f"m-{number}")
    played.ledger.withdrawn.add("m-12")
    played.ledger.hopeless.add("m-13")
    assert played.problems() == []


def lose_row(played: Round) -> None:
    del played.rows[4], played.records[4]


def lose_record(played: Round) -> None:
    del played.records[4]


def misplace(played: Round) -> None:
    played.change(4, sent_offset=7)


def misplace_without_offset(played: Round) -> None:
    played.change(4, sent_offset=-1, sent_partition=1)


def stand_still(played: Round) -> None:
    played.change(9, status="PENDING")
    del played.records[9]


def stay_claimed(played: Round) -> None:
    played.change(9, status="PROCESSING")
    del played.records[9]


def fail(played: Round) -> None:
    played.change(9, status="FAILED")
    del played.records[9]


def charge(played: Round) -> None:
    played.change(2, retry_count=1)


def send_what_was_rolled_back(played: Round) -> None:
    played.records.append(record(99, 10, "undone"))


def keep_what_was_rolled_back(played: Round) -> None:
    played.rows.append(replace(row(11), message_key="undone", status="CANCELLED"))


def send_twice(played: Round) -> None:
    played.records.append(record(3, 10))
    played.in_flight = {4}


def send_too_often(played: Round) -> None:
    played.records += [record(3, 10), record(3, 11)]
    played.in_flight = {3}


def swap(played: Round) -> None:
    played.change(4, sent_offset=5)
    played.change(5, sent_offset=4)
    played.records[4:6] = [record(6, 4), record(5, 5)]


SPOILT: dict[Callable[[Round], None], str] = {
    lose_row: "committed, but there is no row",
    lose_record: "SENT, but not where the row says",
    misplace: "SENT, but not where the row says",
    misplace_without_offset: "SENT, but not where the row says",
    stand_still: "stuck",
    stay_claimed: "stuck",
    fail: "ended wrongly",
    charge: "charged",
    send_what_was_rolled_back: "rolled back, but in a topic",
    keep_what_was_rolled_back: "never committed, but there is a row",
    send_twice: "sent twice, but not in flight",
    send_too_often: "2 duplicates, but only 1",
    swap: "out of order",
}


@pytest.mark.parametrize("spoil", SPOILT, ids=lambda spoil: spoil.__name__)
def test_each_broken_invariant_is_found(spoil: Callable[[Round], None]) -> None:
    played = Round()
    spoil(played)
    assert any(SPOILT[spoil] in problem for problem in played.problems())
