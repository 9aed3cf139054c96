"""What is known of a topic: whether it is there, who leads its partitions, what it accepts."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import cycle
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from bridge.kafka.admin import ClusterAdmin, NoAnswer, TopicRules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka import Producer
    from confluent_kafka.admin import (  # type: ignore[attr-defined] # public, though not marked so
        ClusterMetadata,
        TopicMetadata,
    )

_RULES_SECONDS = 60.0
_RULES_PATIENCE = 2.0
_RULES_PAUSE = 10.0
"""Seconds without another try after the cluster did not answer what it accepts."""
_CREATION_SECONDS = 2.0
"""How long a first look waits for a topic that the broker may just be creating."""
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 0.4
_SHORTEST = 0.05
_TURNS = 4

_MISSING = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_EXCEPTION,  # no topic can have this name
        # librdkafka's local codes have a leading underscore.
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - see above
    }
)


class Condition(StrEnum):
    """How a topic was found."""

    PRESENT = "present"
    """There, and we may write to it; single partitions may be without leader."""
    MISSING = "missing"
    """The cluster has no such topic, and has not created it on our asking."""
    FORBIDDEN = "forbidden"
    """The cluster does not let us see it or write to it."""
    UNREACHABLE = "unreachable"
    """Nobody answered in time, or the answer says nothing yet."""


@dataclass(frozen=True, slots=True)
class TopicState:
    """What a look at a topic found; numbers of partitions count from 0.

    `max_message_bytes` is None where the cluster does not tell. `reason` is in librdkafka's words,
    for people; empty where the topic is present.
    """

    topic: str
    condition: Condition
    partitions: int = 0
    leaderless: frozenset[int] = field(default_factory=frozenset)
    max_message_bytes: int | None = None
    reason: str = ""


class Topics:
    """Looks at topics through a live producer; safe to use from several threads.

    Whatever the cluster does, nothing here raises, and everything returns within about `timeout`
    seconds. `settings`: librdkafka's, as the producer has them.
    """

    def __init__(self, settings: Mapping[str, Any], producer: Producer) -> None:
        self._producer = producer
        self._admin = ClusterAdmin(settings)
        self._rules: dict[str, tuple[float, TopicRules]] = {}
        self._rules_resume = 0.0
        self._missed: set[str] = set()
        self._closed = threading.Event()

    def use(self, producer: Producer) -> None:
        """Look through another producer from now on: the old one has ended."""
        self._producer = producer

    def look(self, topic: str, timeout: float) -> TopicState:
        """Ask the cluster for a topic; where brokers create topics on demand, this demands it.

        The first look at a missing topic waits a moment for such a creation. Limits and rights are
        remembered for a minute (see `forget`).
        """
        deadline = time.monotonic() + timeout
        try:
            cluster, state = self._find(topic, timeout)
        except KafkaException as error:
            return TopicState(topic, Condition.UNREACHABLE, reason=error.args[0].str())
        if state.condition is Condition.MISSING:
            self._missed.add(topic)
            self._rules.pop(topic, None)
        elif state.condition is Condition.PRESENT:
            self._missed.discard(topic)
            # Only the controller tells rules; the client would wait for one that is unknown.
            if cluster.controller_id in cluster.brokers:
                self._learn_rules(topic, deadline)
            return self._ruled(state)
        return state

    def create(self, topic: str, timeout: float) -> str | None:
        """Create a topic with the brokers' own numbers of partitions and replicas.

        Returns None where it exists now, else why it does not.
        """
        problem = self._admin.create(topic, timeout)
        if problem is None:
            # The next look may come before the broker that it asks has heard of the topic.
            self._missed.discard(topic)
        return problem

    def forget(self, topic: str) -> None:
        """Read limits and rights of a topic anew with the next look."""
        self._rules.pop(topic, None)
        self._rules_resume = 0.0

    def cluster_answers(self, timeout: float) -> bool:
        """Tell whether any broker of the cluster answers; asks for no topic, so it stays cheap."""
        return self._admin.answers(timeout)

    def close(self) -> None:
        """End waiting looks and let go of the connections."""
        self._closed.set()
        self._admin.close()

    def _find(self, topic: str, timeout: float) -> tuple[ClusterMetadata, TopicState]:
        """Ask until the topic is found or patience ends; raises KafkaException."""
        deadline = time.monotonic() + timeout
        patience = 0.0 if topic in self._missed else _CREATION_SECONDS
        give_up = min(deadline, time.monotonic() + patience)
        pause = _FIRST_PAUSE
        while True:
            cluster = self._ask(topic, deadline, max(timeout / _TURNS, _SHORTEST))
            state = _state(topic, cluster.topics[topic])
            if state.condition not in {Condition.MISSING, Condition.UNREACHABLE}:
                return cluster, state
            if time.monotonic() + pause > give_up or self._closed.wait(pause):
                return cluster, state
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _ask(self, topic: str, deadline: float, patience: float) -> ClusterMetadata:
        """Ask through the producer and the admin client by turns; raises KafkaException.

        A producer that knows one broker only, and that one is frozen, gets no answer from a cluster
        that is otherwise well; the admin client soon turns to another broker.
        """
        for ask in cycle((self._producer.list_topics, self._admin.list_topics)):
            try:
                answer: ClusterMetadata = ask(topic, timeout=patience)
            except KafkaException:
                # Most often the whole time was spent waiting; an error at once must not spin.
                if time.monotonic() + _SHORTEST > deadline or self._closed.wait(_SHORTEST):
                    raise
            else:
                return answer
        raise AssertionError  # the cycle has no end

    def _learn_rules(self, topic: str, deadline: float) -> None:
        now = time.monotonic()
        known = self._rules.get(topic)
        if (known is not None and now < known[0]) or now < self._rules_resume:
            return
        try:
            rules = self._admin.rules(topic, min(deadline - now, _RULES_PATIENCE))
        except NoAnswer:
            # What was known until now is the best guess; looks must not wait for it each time.
            self._rules_resume = time.monotonic() + _RULES_PAUSE
        else:
            # A forbidden topic is looked at until it is allowed, so ask each time.
            seconds = _RULES_SECONDS if rules.writable else 0.0
            self._rules[topic] = now + seconds, rules

    def _ruled(self, state: TopicState) -> TopicState:
        known = self._rules.get(state.topic)
        if known is None:
            return state
        rules = known[1]
        if not rules.writable:
            reason = "the topic's access rules do not let this client write"
            return TopicState(state.topic, Condition.FORBIDDEN, reason=reason)
        return replace(state, max_message_bytes=rules.max_message_bytes)


def _state(topic: str, found: TopicMetadata) -> TopicState:
    error = found.error
    if error is None and found.partitions:
        leaderless = frozenset(
            number for number, partition in found.partitions.items() if partition.leader < 0
        )
        return TopicState(topic, Condition.PRESENT, len(found.partitions), leaderless)
    if error is None:
        return TopicState(topic, Condition.UNREACHABLE, reason="it has no partitions yet")
    if error.code() in _MISSING:
        return TopicState(topic, Condition.MISSING, reason=error.str())
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return TopicState(topic, Condition.FORBIDDEN, reason=error.str())
    return TopicState(topic, Condition.UNREACHABLE, reason=error.str())
