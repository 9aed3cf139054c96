"""Every sum of the demo's verdict fails when, and only when, it is broken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bridge.demo.figures import Figures
from bridge.demo.report import document, table
from bridge.demo.verdict import failed, judge

GOOD = Figures(
    broker="Apache Kafka 4.3.1",
    is_real_kafka=True,
    database="PostgreSQL 18.6",
    messages_asked=1000,
    orders=260,
    order_events=1000,
    enqueued=1000,
    rollbacks=8,
    rolled_back=8,
    rolled_back_enqueued=0,
    enqueued_twice=12,
    absorbed=12,
    sent=1000,
    records_in_topics=1020,
    received=1020,
    received_distinct=1000,
    processed=1000,
    handled=1000,
    lost=0,
    phantoms=0,
    rolled_back_received=0,
    duplicates=20,
    stray_duplicates=0,
    inversions=0,
    ordered=750,
    kills=1,
    in_flight_at_kill=25,
    rescued=25,
    rescue_seconds=2.2,
    unclean_relays=(),
    backlog=600,
    throughput=15000.0,
    latency_messages=200,
    latency_rate=100.0,
    latency_p50_ms=5.0,
    latency_p99_ms=12.0,
    seconds=20.0,
)


def test_the_verdict_accepts_numbers_that_add_up() -> None:
    checks = judge(GOOD)
    assert failed(checks) == []
    assert document(GOOD, checks, None)["ok"] is True


@pytest.mark.parametrize(
    ("broken", "wrong"),
    [
        ({"order_events": 1001}, {"enqueued"}),
        ({"enqueued": 999}, {"enqueued", "sent"}),
        ({"sent": 999}, {"sent", "received"}),
        (
            {"received_distinct": 999, "processed": 999, "handled": 999},
            {"received", "duplicates"},
        ),
        ({"lost": 1}, {"lost"}),
        ({"phantoms": 1}, {"phantoms"}),
        ({"rolled_back_received": 1}, {"rolled_back"}),
        ({"rolled_back_enqueued": 1}, {"rolled_back"}),
        ({"rolled_back": 0}, {"rolled_back"}),
        ({"absorbed": 11}, {"absorbed"}),
        ({"enqueued_twice": 11}, {"absorbed"}),
        ({"enqueued_twice": 0, "absorbed": 0}, {"absorbed"}),
        ({"records_in_topics": 1021}, {"records"}),
        ({"received": 1021, "records_in_topics": 1021}, {"duplicates"}),
        (
            {"duplicates": 26, "received": 1026, "records_in_topics": 1026},
            {"duplicates_in_flight"},
        ),
        ({"stray_duplicates": 1}, {"duplicates_in_flight"}),
        ({"processed": 1001}, {"processed"}),
        ({"handled": 1020}, {"processed"}),
        ({"inversions": 1}, {"inversions"}),
        ({"ordered": 0}, {"inversions"}),
        ({"kills": 0}, {"rescued"}),
        ({"rescued": 24}, {"rescued"}),
        ({"rescued": 26}, {"rescued"}),
        (
            {
                "in_flight_at_kill": 0,
                "rescued": 0,
                "duplicates": 0,
                "received": 1000,
                "records_in_topics": 1000,
            },
            {"rescued"},
        ),
        ({"unclean_relays": ("relay-2",)}, {"relays"}),
        ({"latency_p50_ms": None, "latency_p99_ms": None}, {"measured"}),
    ],
)
def test_each_broken_sum_fails_the_verdict_by_name(broken: dict[str, Any], wrong: set[str]) -> None:
    figures = replace(GOOD, **broken)
    checks = judge(figures)
    assert {check.name for check in failed(checks)} == wrong
    result = document(figures, checks, None)
    assert result["ok"] is False
    assert {check["name"] for check in result["checks"] if not check["ok"]} == wrong


def test_a_wrong_sum_is_told_with_both_sides() -> None:
    (check,) = failed(judge(replace(GOOD, order_events=1001)))
    assert "1,001 ≠ 1,000" in check.text


def test_the_table_begins_with_the_broker() -> None:
    assert next(iter(table(GOOD).items())) == ("broker", "Apache Kafka 4.3.1")


def test_the_table_survives_what_was_not_measured() -> None:
    nothing = replace(
        GOOD, throughput=None, latency_p50_ms=None, latency_p99_ms=None, rescue_seconds=None
    )
    assert table(nothing)["latency p99"] == "not measured"
