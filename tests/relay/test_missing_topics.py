"""Topics that do not exist: rows wait, fail or have them created; others are not held up."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bridge.local.kafka import LocalKafka
from tests.fixtures.postgres import on_one_server
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.kafka import KafkaBroker
    from tests.fixtures.relays import Outbox, RunRelayFunction, StartRelayFunction

# What a missing topic is does not depend on PostgreSQL's version.
pytestmark = on_one_server


@pytest.fixture(scope="module")
def strict(kafka: KafkaBroker) -> Iterator[str]:
    """A broker that creates no topic on demand."""
    if not kafka.is_real:
        pytest.skip("the mock cluster creates every topic on demand")
    with LocalKafka(settings={"auto.create.topics.enable": "false"}) as broker:
        yield broker.bootstrap_servers


def create(broker: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker})
    admin.create_topics([NewTopic(topic, num_partitions=3)])[topic].result(30)


def fresh(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"


def test_rows_wait_uncharged_until_their_topic_is_there_and_others_go_on(
    outbox: Outbox, start_relay: StartRelayFunction, strict: str
) -> None:
    missing, there = fresh("missing"), fresh("there")
    create(strict, there)
    waiting = outbox.add(5, missing, prefix="w")
    ids = outbox.add(50, there, prefix="o")
    relay = start_relay(kafka_bootstrap_servers=strict)

    outbox.wait_for("SENT", ids)
    told = relay.wait_for_event("destination fails")
    assert (told["destination"], told["code"]) == (missing, "TOPIC_MISSING")
    outbox.wait_for("PENDING", waiting)
    create(strict, missing)

    for row in outbox.wait_for("SENT", waiting):
        assert (row.retry_count, row.claim_count) == (0, 1)
    assert len(relay.events("destination fails")) == 1, "one line for each change, no flood"
    wait_until(lambda: relay.events("destination takes records again"), "it says that, too")


def test_with_fail_the_rows_fail_at_once_with_their_own_code(
    outbox: Outbox, run_relay: RunRelayFunction, strict: str
) -> None:
    ids = outbox.add(3, fresh("missing"))
    run_relay(kafka_bootstrap_servers=strict, relay_missing_topic="fail")
    for row in outbox.rows(ids):
        assert (row.status, row.last_error_code) == ("FAILED", "UNKNOWN_TOPIC")
        assert "does not exist" in (row.last_error_msg or "")


def test_with_create_the_topic_is_made_with_the_brokers_defaults(
    outbox: Outbox, run_relay: RunRelayFunction, strict: str
) -> None:
    topic = fresh("missing")
    ids = outbox.add(30, topic)
    run_relay(kafka_bootstrap_servers=strict, relay_missing_topic="create")
    assert {row.status for row in outbox.rows(ids)} == {"SENT"}
    found = AdminClient({"bootstrap.servers": strict}).list_topics(topic, timeout=30)
    assert len(found.topics[topic].partitions) > 1
