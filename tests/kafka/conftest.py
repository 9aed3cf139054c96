"""A Kafka that these tests may freeze, with access rules and without topics on demand."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bridge.kafka.topics import Topics
from bridge.local.kafka import LocalKafka
from tests.fixtures.kafka import silent
from tests.fixtures.waiting import wait_until
from tests.kafka.producers import make, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SETTINGS = {
    "auto.create.topics.enable": "false",
    "num.partitions": "3",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Everybody may do what no rule forbids.
    "allow.everyone.if.no.acl.found": "true",
}


class StrictKafka:
    """One private node. Whoever freezes it thaws it again."""

    def __init__(self, local: LocalKafka) -> None:
        self.local = local
        self.bootstrap_servers = local.bootstrap_servers
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap_servers}, logger=silent)

    def new_topic(self, partitions: int = 1) -> str:
        topic = f"orders-{uuid.uuid4().hex[:8]}"
        self.admin.create_topics([NewTopic(topic, num_partitions=partitions)])[topic].result(30)
        wait_until(lambda: self._is_led(topic), f"topic {topic} is ready")
        return topic

    def _is_led(self, topic: str) -> bool:
        parts = self.admin.list_topics(topic, timeout=30).topics[topic].partitions
        return bool(parts) and all(part.leader >= 0 for part in parts.values())


@pytest.fixture(scope="session")
def strict_kafka(*, uses_real_kafka: bool) -> Iterator[StrictKafka]:
    """One private node for all tests of this folder."""
    if not uses_real_kafka:
        pytest.skip("needs a real Kafka, to be frozen and to refuse")
    with LocalKafka(settings=_SETTINGS) as local:
        yield StrictKafka(local)


@pytest.fixture
def topics_of() -> Iterator[Callable[[str], Topics]]:
    made: list[Topics] = []

    def make_topics(bootstrap_servers: str) -> Topics:
        topics = Topics(settings(bootstrap_servers), make(bootstrap_servers))
        made.append(topics)
        return topics

    yield make_topics
    for topics in made:
        topics.close()
