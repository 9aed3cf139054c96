"""A failure that says something lasting costs an attempt: backoff, and FAILED at the last one."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bridge.local.broker import describe_choice
from tests.fixtures.kafka import silent
from tests.fixtures.postgres import on_one_server
from tests.fixtures.produce_errors import ProduceErrors
from tests.fixtures.proxied_kafka import ProxiedKafka
from tests.fixtures.relays import PATIENCE
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.relays import Outbox, StartRelayFunction

pytestmark = on_one_server

POLICY_VIOLATION = 44


@pytest.fixture(scope="module")
def errors() -> ProduceErrors:
    return ProduceErrors()


@pytest.fixture(scope="module")
def broker(errors: ProduceErrors, uses_real_kafka: bool) -> Iterator[ProxiedKafka]:  # noqa: FBT001 - a fixture's name
    if not uses_real_kafka:
        pytest.skip(f"needs a real Kafka and this run has the {describe_choice('auto')}")
    with ProxiedKafka(tap=errors) as running:
        yield running


def test_a_charged_failure_waits_for_its_backoff_and_fails_at_the_last_attempt(
    outbox: Outbox, broker: ProxiedKafka, errors: ProduceErrors, start_relay: StartRelayFunction
) -> None:
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.direct_servers}, logger=silent)
    admin.create_topics([NewTopic(topic, num_partitions=1)])[topic].result(30)
    place: dict[str, Any] = {"OUTBOX_BRIDGE_KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers}
    relay = start_relay(env=place)
    outbox.wait_for("SENT", outbox.add(1, topic, prefix="warm"))

    errors.pending.extend([POLICY_VIOLATION] * 1000)
    fresh = outbox.add(5, topic, prefix="fresh")
    third = outbox.add(5, topic, prefix="third", retry_count=2)
    last = outbox.add(5, topic, prefix="last", retry_count=4)
    only = outbox.add(5, topic, prefix="only", max_retry_count=1)
    every = [*fresh, *third, *last, *only]
    wait_until(
        lambda: all(row.last_error_code for row in outbox.rows(every)),
        "every attempt has failed",
        2 * PATIENCE,
    )

    # min(2^n, 60) minutes, jitter upwards by at most 10 %; some seconds may have passed since.
    for ids, failures, minutes in ((fresh, 1, 2), (third, 3, 8)):
        for row in outbox.rows(ids):
            assert (row.status, row.retry_count) == ("PENDING", failures)
            assert minutes * 60 - 2 * PATIENCE < row.wait_seconds <= minutes * 66
    for row in outbox.rows(last + only):
        assert row.status == "FAILED"
        assert row.retry_count in {1, 5}
    for row in outbox.rows(every):
        assert row.last_error_code == "POLICY_VIOLATION"
        assert row.last_error_msg
        assert row.locked_by is None
    failed = [row[0] for row in outbox.query("select outbox_id from app_outbox_failed")]
    assert sorted(failed) == sorted(last + only)
    relay.wait_for_event("destination fails")

    errors.pending.clear()
    outbox.execute("update app_outbox set next_run_at = now() where status = 'PENDING'")
    rows = outbox.wait_for("SENT", fresh + third)
    assert all(row.claim_count == 2 for row in rows)
    report = relay.stop()
    assert (report["retried"], report["failed"]) == (10, 10)
    outbox.assert_nothing_is_left_behind()
