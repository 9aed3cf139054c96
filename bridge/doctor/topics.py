"""Checks of destinations and their topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.doctor.finding import Outcome, ok, problem, unknown
from bridge.doctor.words import counted, listed, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.doctor.cluster import Cluster
    from bridge.kafka.survey import TopicSurvey

_NEEDED = ("DESCRIBE", "WRITE")
_COPIES = 3
"""Two that acknowledge, and one that may be down."""
_REPLICATE = (
    "Use 3 replicas (kafka-reassign-partitions.sh) and min.insync.replicas 2; on a single broker "
    "min.insync.replicas 1."
)
_NO_ACCESS = "TOPIC_AUTHORIZATION_FAILED"


def destinations(cluster: Cluster) -> Iterator[Outcome]:
    """Whether each destination in use leads to a topic."""
    if cluster.use is None:
        yield unknown(
            "which destinations are in use stands in the database, which does not tell",
            "See the verdict on the database.",
        )
        return
    good = unrouted = 0
    for name, rows in cluster.use.destinations.items():
        route = cluster.router.route(name)
        found = cluster.survey.topics.get(route.topic)
        is_routed = cluster.router.names(name)
        how = "its route leads to" if is_routed else "no route names it, so it leads to"
        whose = f"destination {name!r} ({counted(rows, 'open row')})"
        if route.problem is not None:
            yield problem(
                f"{whose}: {how} a name that no topic can have: {route.problem}",
                "Give it a route with a topic in [[routes]], or correct the rows: outbox-bridge "
                "edit "
                "--to-destination.",
            )
        elif found is not None and found.is_missing:
            if cluster.creates_topics:
                good += 1
                continue
            yield problem(
                f"{whose}: {how} topic {route.topic}, which does not exist",
                f"Create topic {route.topic}, or give the destination a route in [[routes]]; if "
                "it is a typing "
                "error of the application, correct the rows' destination.",
            )
        else:
            good += 1
            unrouted += not is_routed
    if good == len(cluster.use.destinations):
        by_name = f", {unrouted} by the topic of their own name" if unrouted else ""
        yield ok(f"{counted(good, 'destination')} in use, each leads to a topic{by_name}")


def topics(cluster: Cluster) -> Iterator[Outcome]:
    """Whether the topics that routes name are there, and every partition can be written to."""
    good = True
    if not cluster.creates_topics:
        used = {
            cluster.router.route(name).topic
            for name in (cluster.use.destinations if cluster.use else ())
        }
        for name, whose in cluster.configured().items():
            found = cluster.survey.topics.get(name)
            # Those in use are the verdict on destinations.
            if found is not None and found.is_missing and name not in used:
                good = False
                yield problem(f"topic {name} ({whose}) does not exist", f"Create topic {name}.")
    for topic in cluster.survey.topics.values():
        if topic.error and not topic.is_missing and topic.error != _NO_ACCESS:
            good = False
            yield unknown(
                f"topic {topic.topic} cannot be looked at: {topic.error}", "Run it again."
            )
        if topic.leaderless:
            good = False
            numbers = listed([str(number) for number in topic.leaderless])
            yield problem(
                f"topic {topic.topic}: partition {numbers} has no leader; rows that belong there "
                "wait",
                "Bring the brokers back that had them. kafka-topics.sh --describe "
                "--unavailable-partitions names them.",
            )
        if topic.shrunk:
            good = False
            numbers = listed([str(number) for number in topic.shrunk])
            yield problem(
                f"topic {topic.topic}: partition {numbers} has replicas that are not in sync",
                "See which broker is down or slow (kafka-topics.sh --describe "
                "--under-replicated-partitions).",
            )
    if good:
        count = sum(topic.partitions for topic in cluster.topics)
        yield ok(
            f"{counted(len(cluster.topics), 'topic')} with {counted(count, 'partition')}, all led"
        )


def min_insync_replicas(cluster: Cluster) -> Iterator[Outcome]:
    """Whether an acknowledged record survives a broker, and one broker fewer stops nothing."""
    found = [judge_replicas(topic, cluster.survey.brokers) for topic in cluster.topics]
    bad = [one for one in found if one is not None]
    yield from bad
    untold = [topic.topic for topic in cluster.topics if topic.min_insync_replicas is None]
    if untold:
        yield _untold(untold, "min.insync.replicas")
    elif not bad:
        alone = cluster.survey.brokers == 1
        note = "; with a single broker there is no second copy" if alone else ""
        yield ok(f"fits the replicas of {counted(len(found), 'topic')}{note}")


def judge_replicas(topic: TopicSurvey, brokers: int) -> Outcome | None:
    """Say what is wrong with a topic's min.insync.replicas beside its replicas; None: nothing."""
    least, replicas = topic.min_insync_replicas, topic.replicas
    if least is None or not replicas:
        return None
    what = f"topic {topic.topic}: min.insync.replicas {least} with {counted(replicas, 'replica')}"
    if least > replicas:
        # KAFKA-15583: since Kafka 3.7 brokers ask for no more replicas than a topic has.
        never = (
            "before Kafka 3.7 no record is acknowledged, since then one broker that is down stops"
        )
        return problem(f"{what}: {never} every write", _change(topic))
    if replicas == 1:
        lost = f"{what}: a broker that is lost takes acknowledged records with it"
        return problem(lost, _REPLICATE) if brokers > 1 else None
    if least == 1:
        lost = f"{what}: a record is acknowledged that stands on one broker alone, and may be lost"
        return problem(lost, _change(topic))
    if least == replicas:
        return problem(
            f"{what}: one broker that is down or restarts stops every write", _change(topic)
        )
    return None


def _change(topic: TopicSurvey) -> str:
    if topic.replicas < _COPIES:
        return _REPLICATE
    return (
        f"kafka-configs.sh --alter --topic {topic.topic} "
        f"--add-config min.insync.replicas={topic.replicas - 1}"
    )


def message_size(cluster: Cluster) -> Iterator[Outcome]:
    """Whether everything that applications may enqueue passes producer and topics."""
    allowed = int(cluster.settings.enqueue.max_payload_bytes)
    producer = cluster.message_max_bytes
    good = True
    if allowed > producer:
        good = False
        yield problem(
            f"enqueue.max_payload_bytes is {allowed:,}, kafka.message.max.bytes {producer:,}: "
            "larger "
            "messages are enqueued and then FAIL",
            "Lower the first, or raise the second with the topics' max.message.bytes.",
        )
    for topic in cluster.topics:
        limit = topic.max_message_bytes
        if limit is not None and limit < min(allowed, producer):
            good = False
            yield problem(
                f"topic {topic.topic} takes records of {size(limit)} at most, applications may "
                "enqueue "
                f"{size(min(allowed, producer))}: larger ones FAIL unless they compress well",
                f"kafka-configs.sh --alter --topic {topic.topic} --add-config max.message.bytes="
                f"{max(producer, allowed)}, or lower enqueue.max_payload_bytes",
            )
    untold = [topic.topic for topic in cluster.topics if topic.max_message_bytes is None]
    if untold:
        yield _untold(untold, "max.message.bytes")
    elif good:
        yield ok(f"payloads of {size(allowed)} pass producer and topics")


def topic_rights(cluster: Cluster) -> Iterator[Outcome]:
    """Whether the cluster's access rules let this client write."""
    good, untold = True, 0
    for topic in cluster.survey.topics.values():
        if topic.error == _NO_ACCESS:
            lacks = list(_NEEDED)
        elif topic.error:
            continue
        elif topic.operations is None:
            untold += 1
            continue
        else:
            lacks = [one for one in _NEEDED if one not in topic.operations]
        if lacks:
            good = False
            yield problem(
                f"the cluster does not allow {listed(lacks)} on topic {topic.topic}",
                f"kafka-acls.sh --add --topic {topic.topic} --allow-principal User:… "
                + " ".join(f"--operation {one.title()}" for one in lacks),
            )
    if good:
        told = len(cluster.topics) - untold
        note = "; the cluster names no rights (no authorizer)" if untold else ""
        yield ok(f"{counted(told, 'topic')} may be written to{note}")


def _untold(names: list[str], setting: str) -> Outcome:
    return unknown(
        f"the cluster does not tell {setting} of {listed(names)}",
        "Allow DESCRIBE_CONFIGS on these topics.",
    )
