"""Duplicates, inversions and percentiles are told from the receipts alone."""

from __future__ import annotations

from bridge.demo.receipts import Receipt, count_inversions, percentile, repeated_ids


def receipt(
    outbox_id: int,
    offset: int,
    *,
    key: str | None = "order-1",
    partition: int = 0,
    topic: str = "orders",
) -> Receipt:
    return Receipt(topic, partition, offset, outbox_id, f"message-{outbox_id}", key, 0)


def test_rows_in_the_order_of_their_key_are_no_inversion() -> None:
    rows = [receipt(1, 0), receipt(7, 1, key="order-2"), receipt(2, 2), receipt(3, 3)]
    assert count_inversions(rows) == 0


def test_a_row_behind_a_later_one_of_its_key_is_an_inversion() -> None:
    assert count_inversions([receipt(2, 0), receipt(1, 1), receipt(3, 2)]) == 1


def test_the_order_is_the_topics_and_not_that_of_arrival() -> None:
    assert count_inversions([receipt(2, 1), receipt(1, 0)]) == 0


def test_only_first_occurrences_count() -> None:
    rows = [receipt(1, 0), receipt(2, 1), receipt(1, 2), receipt(2, 3), receipt(3, 4)]
    assert count_inversions(rows) == 0
    assert repeated_ids(rows) == [1, 2]


def test_rows_without_a_key_or_of_another_topic_have_no_order() -> None:
    assert count_inversions([receipt(2, 0, key=None), receipt(1, 1, key=None)]) == 0
    assert count_inversions([receipt(2, 0), receipt(1, 1, topic="mails")]) == 0


def test_one_key_in_two_partitions_is_an_inversion() -> None:
    assert count_inversions([receipt(1, 0), receipt(2, 0, partition=1)]) == 1


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert percentile(values, 0.5) == 50
    assert percentile(values, 0.99) == 99
    assert percentile([3.0], 0.99) == 3
    assert percentile([], 0.5) is None
