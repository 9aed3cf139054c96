"""Checks of the cluster as a whole, and of how the producer is set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.doctor.finding import Outcome, ok, problem, unknown
from bridge.doctor.words import counted, listed
from bridge.kafka.partitions import partition_of
from bridge.kafka.producer import DEFAULTS
from bridge.kafka.properties import canonical, property_text, refusal
from bridge.routing import KeyChoice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.doctor.cluster import Cluster, SentRow

_OLDEST = "3.0"


def kafka(cluster: Cluster) -> Iterator[Outcome]:
    """Whether the cluster answers and has a controller."""
    brokers = counted(cluster.survey.brokers, "broker")
    if cluster.survey.controller:
        yield ok(f"{brokers} at {cluster.servers}")
    else:
        yield problem(
            f"{brokers} at {cluster.servers}, and no controller: no partition gets a new leader, "
            "no topic "
            "can be created",
            "See why the controllers (KRaft quorum, or ZooKeeper) do not agree.",
        )


def kafka_version(cluster: Cluster) -> Iterator[Outcome]:
    """Whether the brokers are of a release that the relay supports."""
    release = cluster.survey.release
    if not cluster.survey.apis:
        yield unknown(
            "librdkafka did not tell which versions of the protocol the brokers speak",
            f"Look at the brokers: Kafka {_OLDEST} or newer is needed.",
        )
    elif release is None:
        yield problem(
            f"the brokers do not speak what Kafka {_OLDEST} does: they are older (or a mock)",
            f"Upgrade the brokers to Kafka {_OLDEST} or newer.",
        )
    else:
        yield ok(f"the brokers are Kafka {release} or newer")


def partitioner(cluster: Cluster) -> Iterator[Outcome]:
    """Whether records of a key go where Java's producers put that key."""
    properties = cluster.settings.kafka.properties
    unsafe = [no for name, value in properties.items() if (no := refusal(name, value)) is not None]
    for no in unsafe:
        yield problem(
            f"kafka.{no.name} = {property_text(properties[no.name])} is allowed by "
            "kafka.allow_unsafe, although "
            f"{no.reason}",
            f"In the settings: {no.fix}.",
        )
    checked, strayed = _strayed(cluster)
    if strayed:
        where = sorted({row.topic for row in strayed})
        yield problem(
            f"{len(strayed)} of the newest {counted(checked, 'record')} with a key stand in "
            f"another partition of {listed(where)} than Java's partitioner chooses: records of "
            "one key are "
            "spread over two partitions",
            "Either the number of partitions was changed (then old and new records of a key may "
            "be read out of "
            "order: let consumers finish first), or kafka.partitioner is not murmur2_random.",
        )
    if not unsafe and not strayed:
        given = {canonical(name): value for name, value in properties.items()}
        name = property_text(given.get("partitioner", DEFAULTS["partitioner"]))
        yield ok(f"{name}; {counted(checked, 'recent record')} looked at, each in its partition")


def _strayed(cluster: Cluster) -> tuple[int, list[SentRow]]:
    """Return how many records could be checked, and those in an unexpected partition."""
    strayed = []
    checked = 0
    for row in cluster.use.sent if cluster.use else ():
        topic = cluster.survey.topics.get(row.topic)
        choice = cluster.router.route(row.destination).key
        key = row.message_key if choice is KeyChoice.MESSAGE_KEY else row.ordering_key
        if choice is KeyChoice.AUTO:
            key = row.ordering_key or row.message_key
        if topic is None or not topic.partitions or key is None:
            continue
        checked += 1
        if partition_of(key.encode(), topic.partitions) != row.partition:
            strayed.append(row)
    return checked, strayed
