"""The table of metrics: OpenTelemetry's names are theirs, ours share a prefix, the page has all."""

from __future__ import annotations

import re
from pathlib import Path

from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE
from opentelemetry.semconv.schemas import Schemas

from bridge.telemetry import names
from bridge.telemetry.names import METRICS, Group, Kind

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_messaging_names_are_those_of_the_semantic_conventions() -> None:
    conventions = messaging_metrics
    assert names.OPERATION_DURATION.name == conventions.MESSAGING_CLIENT_OPERATION_DURATION
    assert names.SENT_MESSAGES.name == conventions.MESSAGING_CLIENT_SENT_MESSAGES
    assert Schemas.V1_44_0.value == names.SCHEMA_URL
    assert (
        names.MESSAGING_SYSTEM,
        names.MESSAGING_OPERATION_NAME,
        names.MESSAGING_OPERATION_TYPE,
        names.MESSAGING_DESTINATION_NAME,
        names.ERROR_TYPE,
    ) == (
        messaging_attributes.MESSAGING_SYSTEM,
        messaging_attributes.MESSAGING_OPERATION_NAME,
        messaging_attributes.MESSAGING_OPERATION_TYPE,
        messaging_attributes.MESSAGING_DESTINATION_NAME,
        ERROR_TYPE,
    )


def test_ours_share_one_prefix_and_no_two_meet_on_the_endpoint() -> None:
    ours = [metric for metric in METRICS if metric.group is not Group.MESSAGING]
    assert all(re.fullmatch(r"outbox_bridge(\.[a-z_]+)+", metric.name) for metric in ours)
    assert len({metric.prometheus_name for metric in METRICS}) == len(METRICS)
    assert all(metric.meaning.endswith(".") for metric in METRICS)


def test_bounds_ascend() -> None:
    for bounds in (names.OPERATION_BOUNDS, names.DELIVERY_BOUNDS):
        assert list(bounds) == sorted(set(bounds))


def test_the_page_lists_every_metric_as_the_code_has_it() -> None:
    lines = PAGE.read_text().splitlines()
    found = [
        [cell.strip().strip("`") for cell in line.strip("|").split(" | ")]
        for line in lines
        if re.match(r"\| `(outbox_bridge|messaging)_", line)
    ]
    assert found == [
        [
            metric.prometheus_name,
            metric.name,
            metric.kind.value,
            metric.unit,
            "`, `".join(metric.prometheus_labels) or "none",
            metric.meaning,
        ]
        for group in (Group.RELAY, Group.MESSAGING, Group.BACKLOG)
        for metric in METRICS
        if metric.group is group
    ]
    assert {metric.kind for metric in METRICS} == set(Kind)
