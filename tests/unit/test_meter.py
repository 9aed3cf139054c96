"""The meter: every acknowledged row is measured once, by its own age, whatever its batch."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from confluent_kafka import KafkaError
from prometheus_client.parser import text_string_to_metric_families

from bridge.relay.batch import Ack, Batch, Refusal
from bridge.relay.database_clock import DatabaseClock
from bridge.relay.meter import Meter
from bridge.routing import Router, Rule
from bridge.telemetry.labels import DestinationLabels
from bridge.telemetry.metrics import Instruments

NOW = 800_000_000_000_000
"""Microseconds since 2000: the database's time at monotonic time 1000."""
EVER = -(1 << 63)


def batch(ages: list[float], *destinations: str, first: int = 0) -> Batch:
    """Make a batch of rows that could go out so many seconds before NOW."""
    rows: list[Any] = []
    for n, age in enumerate(ages):
        due = EVER if age == float("inf") else NOW - int(age * 1_000_000)
        destination = destinations[n % len(destinations)]
        rows.append((first + n, destination, *[None] * 9, struct.pack(">q", due), None))
    return Batch(f"claim-{first}", rows)


class Bench:
    def __init__(self, *, knows_time: bool = True, most: int = 100) -> None:
        clock = DatabaseClock()
        if knows_time:
            clock.note(1000.0, 1000.0, NOW)
        self.instruments = Instruments("relay-1")
        router = Router([Rule("routed", "elsewhere")])
        self.meter = Meter(self.instruments, DestinationLabels(most), router, clock)

    def send(self, *batches: Batch) -> None:
        for one in batches:
            one.sending = self.meter.begin(one.rows)
            one.sending.handed_at = 999.0
            one.sending.acked_at = 1000.0

    def acknowledge(self, one: Batch, ids: list[int]) -> None:
        one.awaited -= len(ids)
        self.meter.reported([Ack(outbox_id, 0, 0, one) for outbox_id in ids], ())

    def deliveries(self, label: str = "orders") -> tuple[dict[float, float], float]:
        """Return the values up to each bound, and their sum."""
        buckets, total = self.instruments.deliveries.read()[label]
        return {float(bound): count for bound, count in buckets}, total

    def samples(self, name: str) -> dict[tuple[str, ...], float]:
        text = self.instruments.expose("")[1].decode()
        return {
            (s.labels["messaging_destination_name"], s.labels.get("error_type", "")): s.value
            for family in text_string_to_metric_families(text)
            for s in family.samples
            if s.name == name
        }


COUNT = "messaging_client_operation_duration_seconds_count"
SENT = "messaging_client_sent_messages_total"


@pytest.mark.parametrize(
    "ages", [[3.0, 3.1, 3.2, 3.3], [0.001, 0.7, 3.0, 4000.0]], ids=["one bucket", "many"]
)
@pytest.mark.parametrize(
    "rounds", [[[0, 1, 2, 3]], [[2], [0, 3], [1]]], ids=["at once", "bit by bit"]
)
def test_each_row_counts_once_by_its_own_age(ages: list[float], rounds: list[list[int]]) -> None:
    bench, one = Bench(), batch(ages, "orders")
    bench.send(one)
    for ids in rounds:
        bench.acknowledge(one, ids)
    found, total = bench.deliveries()
    for bound in (0.002, 1, 5, 3600, float("inf")):
        assert found[bound] == sum(age <= bound for age in ages)
    assert total == pytest.approx(sum(ages))
    assert bench.samples(SENT) == {("orders", ""): 4}
    assert bench.samples(COUNT) == {("orders", ""): 1}


def test_rows_of_several_destinations_in_one_batch_are_told_apart() -> None:
    bench, one = Bench(), batch([1.0, 50.0, 1.0, 50.0], "orders", "routed")
    bench.send(one)
    bench.acknowledge(one, [0, 1])
    bench.acknowledge(one, [2, 3])
    assert bench.deliveries("orders")[0][2.5] == 2
    assert bench.deliveries("routed")[0][30] == 0
    assert bench.deliveries("routed")[0][60] == 2
    # By the topic there, by the destination here.
    assert bench.samples(SENT) == {("orders", ""): 2, ("elsewhere", ""): 2}
    assert bench.samples(COUNT) == {("orders", ""): 1, ("elsewhere", ""): 1}


def test_what_is_not_acknowledged_is_not_measured_and_ends_the_operation_all_the_same() -> None:
    bench, one = Bench(), batch([1.0, 2000.0, 1.0], "orders")
    bench.send(one)
    bench.acknowledge(one, [0, 2])
    assert bench.samples(COUNT) == {}
    one.awaited -= 1
    bench.meter.reported((), [one])
    found, total = bench.deliveries()
    assert (found[2.5], found[float("inf")]) == (2, 2)
    assert total == pytest.approx(2.0)
    assert bench.samples(COUNT) == {("orders", ""): 1}
    bench.meter.reported((), [one])
    assert bench.samples(COUNT) == {("orders", ""): 1}


def test_ages_that_are_none_are_left_out_or_nothing() -> None:
    """-infinity is no time to count from; a time to come is one that a clock has gone back from."""
    bench, one = Bench(), batch([float("inf"), -5.0, 1.0], "orders")
    bench.send(one)
    bench.acknowledge(one, [0, 1, 2])
    found, total = bench.deliveries()
    assert (found[0.002], found[1], found[float("inf")]) == (1, 2, 2)
    assert total == pytest.approx(1.0)
    assert bench.samples(SENT) == {("orders", ""): 3}


def test_without_the_databases_time_all_but_the_age_is_measured() -> None:
    bench, one = Bench(knows_time=False), batch([1.0], "orders")
    bench.send(one)
    bench.acknowledge(one, [0])
    assert bench.instruments.deliveries.read() == {}
    assert bench.samples(SENT) == {("orders", ""): 1}


def test_refusals_are_attempts_with_their_error() -> None:
    bench, one = Bench(), batch([1.0, 1.0], "orders")
    bench.send(one)
    refused = [Refusal(n, KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), False, one) for n in (0, 1)]  # noqa: FBT003 - as the publisher makes them
    bench.meter.refused(refused)
    assert bench.samples(SENT) == {("orders", "MSG_SIZE_TOO_LARGE"): 2}
    assert bench.samples(COUNT) == {("orders", "MSG_SIZE_TOO_LARGE"): 1}


def test_destinations_beyond_the_limit_are_other_in_every_metric() -> None:
    bench = Bench(most=1)
    batches = [batch([1.0], name, first=n) for n, name in enumerate(["orders", "b", "c"])]
    bench.send(*batches)
    for n, one in enumerate(batches):
        bench.acknowledge(one, [n])
    assert bench.samples(SENT) == {("orders", ""): 1, ("other", ""): 2}
    assert bench.deliveries("other")[0][float("inf")] == 2
