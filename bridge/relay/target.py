"""Where the rows of a destination go, as far as the relay knows its topic."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bridge.kafka.partitions import partition_of
from bridge.kafka.producer import MESSAGE_MAX_BYTES
from bridge.kafka.topics import Condition, TopicState
from bridge.lifecycle import ErrorCode
from bridge.routing import KeyChoice

if TYPE_CHECKING:
    from confluent_kafka import Producer

    from bridge.relay.batch import Batch
    from bridge.relay.flight import Flight
    from bridge.relay.producers import Producers
    from bridge.routing import Router

_HEADERS_ROOM = 32_768
"""Bytes for key and headers: a smaller payload is not measured exactly unless the limit is near."""


@dataclass(frozen=True, slots=True)
class Target:
    """One destination, for the rows of one batch.

    A record whose payload has more than `plain_bytes` is measured; beyond `max_bytes`, the topic's
    limit, it may be refused and is sent alone. `leaderless`: partitions that take nothing now.
    """

    topic: str
    key: KeyChoice
    producer: Producer
    problem: str | None = None
    problem_code: ErrorCode = ErrorCode.INVALID_TOPIC
    dead_letter: str | None = None
    max_bytes: int = MESSAGE_MAX_BYTES
    plain_bytes: int = MESSAGE_MAX_BYTES - _HEADERS_ROOM
    partitions: int = 0
    leaderless: frozenset[int] = field(default_factory=frozenset)

    def partition_of(self, key: str | None) -> int:
        """Return the partition that a record with this key goes to; -1 for one without key."""
        return partition_of(key.encode(), self.partitions) if key and self.partitions else -1


NOWHERE = Target(topic="", key=KeyChoice.AUTO, producer=None)  # type: ignore[arg-type]  # never produced to


class Aim:
    """Answers where a destination's rows go; used by the publisher's thread, fed by the watch.

    `fail_missing`: rows of topics that do not exist are failures, and not made to wait.
    `max_bytes`: the producer's own limit of a record.
    """

    def __init__(
        self,
        router: Router,
        producers: Producers,
        flight: Flight,
        *,
        fail_missing: bool,
        max_bytes: int,
    ) -> None:
        self._max_bytes = max_bytes
        self._router = router
        self._producers = producers
        self._flight = flight
        self.fails_missing = fail_missing
        self._states: dict[str, TopicState] = {}
        self._limits: dict[str, int | None] = {}

    def learn(self, state: TopicState) -> None:
        """Take what a look at a topic found; from any thread."""
        self._states[state.topic] = state

    def at(self, destination: str, batch: Batch) -> Target:
        """Return the target for the rows of `batch` with this destination."""
        route = self._router.route(destination)
        state = self._states.get(route.topic)
        problem, code = route.problem, ErrorCode.INVALID_TOPIC
        if problem is None and self.fails_missing and _is_missing(state):
            problem, code = f"topic {route.topic} does not exist", ErrorCode.UNKNOWN_TOPIC
        limit = self._limit(route.topic, destination, batch, state)
        most = min(self._max_bytes, limit or self._max_bytes)
        return Target(
            topic=route.topic,
            key=route.key,
            producer=self._producers.for_limit(limit),
            problem=problem,
            problem_code=code,
            dead_letter=route.dead_letter,
            max_bytes=most,
            plain_bytes=max(most // 4, most - _HEADERS_ROOM),
            partitions=state.partitions if state else 0,
            leaderless=state.leaderless if state else frozenset(),
        )

    def _limit(
        self, topic: str, destination: str, batch: Batch, state: TopicState | None
    ) -> int | None:
        """Return the topic's limit. A new one waits until what went by the old one is reported.

        The limit chooses the producer, and two producers do not keep their records in order.
        """
        latest = state.max_message_bytes if state else None
        known = self._limits.get(topic)
        if latest == known and topic in self._limits:
            return known
        others = self._flight.account(destination).awaited - batch.destinations[destination]
        if topic in self._limits and others > 0:
            return known
        self._limits[topic] = latest
        return latest


def _is_missing(state: TopicState | None) -> bool:
    return state is not None and state.condition is Condition.MISSING
