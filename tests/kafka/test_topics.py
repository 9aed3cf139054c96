"""What a look at a topic finds, on clusters that are well, strict, frozen or gone."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined] # public, though not marked so
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from bridge.kafka.admin import ClusterAdmin, admin_settings
from bridge.kafka.topics import Condition, Topics, TopicState
from bridge.local.mock import MockKafka
from tests.fixtures.waiting import wait_until
from tests.kafka.producers import settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Producer

    from tests.fixtures.kafka import KafkaBroker, NewTopicFunction
    from tests.kafka.conftest import StrictKafka

TIMEOUT = 30.0
SHORT = 1.0
SLACK = 30.0
"""Seconds by which a loaded machine may be late; without a time-out it would be a minute."""


@pytest.fixture
def lenient(kafka: KafkaBroker, topics_of: Callable[[str], Topics]) -> Topics:
    """Topics of the shared Kafka, which creates them on demand."""
    if not kafka.is_real:
        pytest.skip("the mock cluster has no limits, no rights and no missing topics")
    return topics_of(kafka.bootstrap_servers)


@pytest.fixture
def strict(strict_kafka: StrictKafka, topics_of: Callable[[str], Topics]) -> Topics:
    return topics_of(strict_kafka.bootstrap_servers)


def unused() -> str:
    return f"unused-{uuid.uuid4().hex[:8]}"


def set_limit(kafka: KafkaBroker, topic: str, limit: int) -> None:
    entry = ConfigEntry(
        "max.message.bytes", str(limit), incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    kafka.admin.incremental_alter_configs([resource])[resource].result(30)


def test_a_topic_is_found_with_its_partitions_and_its_limit(
    lenient: Topics, new_topic: NewTopicFunction
) -> None:
    topic = new_topic(partitions=5, config={"max.message.bytes": "2345"})
    assert lenient.look(topic, TIMEOUT) == TopicState(
        topic, Condition.PRESENT, partitions=5, leaderless=frozenset(), max_message_bytes=2345
    )


class StuckProducer:
    """Stands in for a producer whose only connection leads to a frozen broker."""

    def list_topics(self, *_: object, **__: object) -> object:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def test_a_cluster_that_the_producer_cannot_ask_is_asked_by_the_admin_client(
    lenient: Topics, new_topic: NewTopicFunction
) -> None:
    topic = new_topic(partitions=2)
    lenient.use(cast("Producer", StuckProducer()))
    state = lenient.look(topic, TIMEOUT)
    assert (state.condition, state.partitions) == (Condition.PRESENT, 2)


def test_a_limit_is_remembered_until_it_is_forgotten(
    lenient: Topics, kafka: KafkaBroker, new_topic: NewTopicFunction
) -> None:
    topic = new_topic(config={"max.message.bytes": "5000"})
    assert lenient.look(topic, TIMEOUT).max_message_bytes == 5000
    set_limit(kafka, topic, 3000)
    assert lenient.look(topic, TIMEOUT).max_message_bytes == 5000

    def anew() -> int | None:
        lenient.forget(topic)
        return lenient.look(topic, TIMEOUT).max_message_bytes

    # The broker itself takes a moment to hear of its new limit.
    wait_until(lambda: anew() == 3000, "the new limit is seen")


def test_the_first_look_waits_for_a_topic_that_the_broker_creates_on_demand(
    lenient: Topics,
) -> None:
    assert lenient.look(unused(), TIMEOUT).condition is Condition.PRESENT


def test_a_missing_topic_is_missing_until_it_is_created(
    strict: Topics, strict_kafka: StrictKafka
) -> None:
    topic = unused()
    for _ in range(3):
        state = strict.look(topic, TIMEOUT)
        assert (state.condition, state.partitions) == (Condition.MISSING, 0)
        assert "Unknown topic" in state.reason
    assert strict.create(topic, TIMEOUT) is None
    state = strict.look(topic, TIMEOUT)
    assert (state.condition, state.partitions) == (Condition.PRESENT, 3)  # the broker's default
    assert strict.create(topic, TIMEOUT) is None  # somebody else was faster


def test_only_the_first_look_waits_for_a_missing_topic(strict: Topics) -> None:
    topic = unused()

    def look() -> float:
        started = time.monotonic()
        strict.look(topic, TIMEOUT)
        return time.monotonic() - started

    first = look()
    # The quickest of some: the others may have waited for the machine.
    assert min(look() for _ in range(5)) < first / 2


def test_a_topic_that_cannot_be_created_says_why(strict: Topics) -> None:
    problem = strict.create("no such name", TIMEOUT)
    assert problem is not None
    assert "name" in problem
    assert strict.look("no such name", TIMEOUT).condition is Condition.MISSING


@pytest.mark.parametrize("operation", ["DESCRIBE", "WRITE"])
def test_a_topic_that_may_not_be_seen_or_written_is_forbidden_until_it_is_allowed(
    strict: Topics, strict_kafka: StrictKafka, operation: str
) -> None:
    topic = strict_kafka.new_topic()
    assert strict.look(topic, TIMEOUT).condition is Condition.PRESENT
    place = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*")
    # A rule makes a topic one that has rules: what none allows is forbidden from then on.
    rules = [
        AclBinding(*place, getattr(AclOperation, operation), AclPermissionType.DENY),
        AclBinding(*place, AclOperation.ALL, AclPermissionType.ALLOW),
    ]
    for done in strict_kafka.admin.create_acls(rules).values():
        done.result(30)

    def forbidden() -> bool:
        strict.forget(topic)
        return strict.look(topic, TIMEOUT).condition is Condition.FORBIDDEN

    # The broker itself takes a moment to hear of its new rules.
    wait_until(forbidden, "the topic is forbidden")
    state = strict.look(topic, TIMEOUT)
    assert (state.condition, state.partitions) == (Condition.FORBIDDEN, 0)
    assert state.reason

    given = AclBindingFilter(*place, AclOperation.ANY, AclPermissionType.DENY)
    for done in strict_kafka.admin.delete_acls([given]).values():
        done.result(30)
    wait_until(
        lambda: strict.look(topic, TIMEOUT).condition is Condition.PRESENT, "it is allowed again"
    )


def test_a_frozen_cluster_is_unreachable_in_time_and_well_again_afterwards(
    strict: Topics, strict_kafka: StrictKafka
) -> None:
    topic = strict_kafka.new_topic()
    assert strict.look(topic, TIMEOUT).condition is Condition.PRESENT
    assert strict.cluster_answers(TIMEOUT)
    strict.forget(topic)
    strict_kafka.local.suspend()
    try:
        started = time.monotonic()
        state = strict.look(topic, SHORT)
        assert (state.condition, state.partitions) == (Condition.UNREACHABLE, 0)
        assert state.reason
        assert not strict.cluster_answers(SHORT)
        assert strict.create(unused(), SHORT) is not None
        assert time.monotonic() - started < 3 * SHORT + SLACK
    finally:
        strict_kafka.local.resume()
    assert strict.cluster_answers(TIMEOUT)
    assert strict.look(topic, TIMEOUT).condition is Condition.PRESENT


def test_a_cluster_that_is_not_there_answers_nothing_in_time(
    topics_of: Callable[[str], Topics], capfd: pytest.CaptureFixture[str]
) -> None:
    topics = topics_of("127.0.0.1:1")
    started = time.monotonic()
    assert topics.look("orders", SHORT).condition is Condition.UNREACHABLE
    assert not topics.cluster_answers(SHORT)
    problem = topics.create("orders", SHORT)
    assert problem is not None
    assert "Timed out" in problem
    assert time.monotonic() - started < 3 * SHORT + SLACK
    assert capfd.readouterr() == ("", "")


def test_a_cluster_without_controller_is_not_asked_for_limits(
    topics_of: Callable[[str], Topics], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mock cluster names none, and the client would wait for one until its time-out."""
    monkeypatch.setattr(ClusterAdmin, "rules", lambda *_: pytest.fail("asked all the same"))
    with MockKafka() as mock:
        topics = topics_of(mock.bootstrap_servers)
        state = topics.look("orders", TIMEOUT)
        assert (state.condition, state.max_message_bytes) == (Condition.PRESENT, None)
        assert topics.cluster_answers(TIMEOUT)


def test_only_looks_demand_topics_from_the_broker(lenient: Topics, kafka: KafkaBroker) -> None:
    """What the admin client asks for is created on order only, not by the asking."""
    asked, demanded = unused(), unused()
    admin = ClusterAdmin(settings(kafka.bootstrap_servers))
    for _ in range(3):
        admin.list_topics(asked, TIMEOUT)
    assert lenient.cluster_answers(TIMEOUT)
    # By then the broker would have created the other one too.
    assert lenient.look(demanded, TIMEOUT).condition is Condition.PRESENT
    there = kafka.admin.list_topics(timeout=TIMEOUT).topics
    assert demanded in there
    assert asked not in there


def test_the_admin_client_takes_the_way_to_the_cluster_and_no_more_from_the_producer() -> None:
    given = {
        "bootstrap.servers": "kafka:9093",
        "security.protocol": "SASL_SSL",
        "sasl.password": "secret",
        "oauth_cb": print,
        "enable.idempotence": True,
        "transactional.id": "x",
        "error_cb": print,
        "stats_cb": print,
        "socket.timeout.ms": 60_000,
    }
    taken = admin_settings(given)
    assert {"bootstrap.servers", "security.protocol", "sasl.password", "oauth_cb"} <= set(taken)
    assert not {"enable.idempotence", "transactional.id", "stats_cb"} & set(taken)
    assert taken["error_cb"] is not print
    assert taken["socket.timeout.ms"] < 60_000
