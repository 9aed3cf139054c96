"""One frozen node of three: what it leads is hidden until the cluster gives it up, nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bridge.kafka.topics import Condition, Topics
from tests.fixtures.kafka import silent
from tests.fixtures.waiting import wait_until
from tests.kafka.producers import make, send, send_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.kafka import OwnKafkaFunction

TIMEOUT = 30.0
IMPATIENT = 9.0
"""Seconds; less than a producer waits for a node that does not answer."""


@pytest.mark.timeout(240)
def test_a_frozen_node_of_three_hides_only_the_partitions_that_it_leads(
    own_kafka: OwnKafkaFunction, topics_of: Callable[[str], Topics]
) -> None:
    local = own_kafka(brokers=3)
    admin = AdminClient({"bootstrap.servers": local.bootstrap_servers}, logger=silent)
    # One replica each, on node 1, 2, 3, 1, 2, 3.
    nodes = [[1 + number % 3] for number in range(6)]
    new = NewTopic("orders", num_partitions=6, replica_assignment=nodes)
    safe = NewTopic("safe", num_partitions=1, replica_assignment=[[2, 1, 3]])
    for done in admin.create_topics([new, safe]).values():
        done.result(30)
    # Both of its clients begin with the node that is frozen later.
    topics = topics_of(f"127.0.0.1:{local.nodes[1].port}")
    producer = make(local.bootstrap_servers)
    assert len(send_all(producer, "safe", ["1"]).taken) == 1
    wait_until(lambda: topics.look("orders", TIMEOUT).partitions == 6, "the topic is there")
    assert topics.cluster_answers(TIMEOUT)

    local.suspend(1)

    sent = send(producer, "safe", ["2", "3"])
    for _ in range(3):
        assert topics.cluster_answers(TIMEOUT)
        assert topics.look("orders", IMPATIENT).condition is Condition.PRESENT
    wait_until(lambda: topics.look("orders", TIMEOUT).leaderless == {1, 4}, "it is given up", 60)
    assert topics.look("orders", TIMEOUT).partitions == 6
    # A producer does not wait a minute for a node that does not answer.
    wait_until(lambda: producer.poll(0.02) + 1 and len(sent) == 2, "the new leader has them")
    assert sent.taken == ["2", "3"]
    local.resume(1)
    wait_until(lambda: not topics.look("orders", TIMEOUT).leaderless, "it leads again", 60)
