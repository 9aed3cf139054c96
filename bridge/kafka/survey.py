"""What a cluster says of itself and of some topics; asks, and changes nothing."""

from __future__ import annotations

import logging
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined] # public, though not marked so
    AdminClient,
    ConfigResource,
    ResourceType,
)

from bridge.errors import ConfigurationError, KafkaError
from bridge.kafka.admin import admin_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from concurrent.futures import Future

_GRACE = 0.5
_API = re.compile(r"ApiKey \S+ \((?P<key>\d+)\) Versions (?P<low>\d+)\.\.(?P<high>\d+)")
_MISSING = "UNKNOWN_TOPIC_OR_PART"

PRODUCE, FETCH, LIST_TRANSACTIONS = 0, 1, 66
"""Numbers of requests in Kafka's protocol."""

_SINCE = (
    # Highest version of a request, and the release of Kafka that brought it.
    ("4.0", PRODUCE, 12),
    ("3.7", PRODUCE, 10),
    ("3.5", FETCH, 15),
    ("3.1", FETCH, 13),
    ("3.0", LIST_TRANSACTIONS, 0),
)


@dataclass(frozen=True, slots=True)
class TopicSurvey:
    """What is known of a topic; partitions count from 0.

    `error` is the name of librdkafka's error code where the topic is not there or not to be seen.
    What the cluster does not tell is None: `operations` also where it has no authorizer.
    """

    topic: str
    error: str = ""
    partitions: int = 0
    replicas: int = 0
    """Replicas of the partition that has the fewest."""
    leaderless: tuple[int, ...] = ()
    shrunk: tuple[int, ...] = ()
    """Partitions of which a replica is not in sync."""
    max_message_bytes: int | None = None
    min_insync_replicas: int | None = None
    operations: frozenset[str] | None = None
    """What this client may do with it: WRITE, DESCRIBE …"""

    @property
    def is_missing(self) -> bool:
        """Tell whether the cluster has no such topic."""
        return self.error == _MISSING


@dataclass(frozen=True, slots=True)
class ClusterSurvey:
    """What is known of the cluster."""

    brokers: int
    controller: bool
    apis: dict[int, int] = field(default_factory=dict)
    """Highest version by request that every broker asked supports; empty: not told."""
    topics: dict[str, TopicSurvey] = field(default_factory=dict)
    creates_topics: bool | None = None
    """Whether brokers create a topic that a producer asks for; None: not told."""

    @property
    def release(self) -> str | None:
        """The oldest release of Kafka that speaks these versions; None below 3.0."""
        if LIST_TRANSACTIONS not in self.apis:
            return None  # other brokers than Kafka's may speak single requests in newer versions
        for release, request, version in _SINCE:
            if self.apis.get(request, -1) >= version:
                return release
        return None


class _Listener(logging.Handler):
    """Picks out of librdkafka's log which versions of the protocol each broker speaks."""

    def __init__(self) -> None:
        super().__init__()
        self._found: dict[str, dict[int, int]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        match = _API.search(text)
        if match:
            broker = text[: match.start()]
            self._found.setdefault(broker, {})[int(match["key"])] = int(match["high"])

    def common(self) -> dict[int, int]:
        """Return what all brokers have in common."""
        each = list(self._found.values())
        if not each:
            return {}
        shared = set(each[0]).intersection(*each[1:])
        return {key: min(one[key] for one in each) for key in shared}


def survey(settings: Mapping[str, Any], topics: Iterable[str], timeout: float) -> ClusterSurvey:
    """Ask the cluster about itself and these topics; creates none of them.

    `settings` are librdkafka's, as the producer has them. Raises KafkaError where no broker answers
    within `timeout` seconds, ConfigurationError where librdkafka refuses the settings.
    """
    names = sorted(set(topics))
    listener = _Listener()
    log = logging.Logger("bridge.kafka.survey", logging.DEBUG)  # noqa: LOG001 - the lines of two surveys must not mix
    log.addHandler(listener)
    log.propagate = False
    # The protocol's versions are told nowhere but in the log.
    wanted = {**admin_settings(settings), "debug": "feature", "log_level": 7}
    try:
        client = AdminClient(wanted, logger=log)
    except KafkaException as error:
        raise ConfigurationError(
            f"librdkafka refuses the [kafka] settings: {error.args[0].str()}"
        ) from error
    try:
        cluster = client.list_topics("__consumer_offsets", timeout=timeout)
    except KafkaException as error:
        raise KafkaError(f"Kafka does not answer: {error.args[0].str()}") from error
    client.poll(0)  # librdkafka's log lines come with it
    found = _topics(client, names, timeout) if names else {}
    client.poll(0)
    return ClusterSurvey(
        brokers=len(cluster.brokers),
        controller=cluster.controller_id in cluster.brokers,
        apis=listener.common(),
        topics=found,
        creates_topics=_creates_topics(client, cluster.orig_broker_id, timeout),
    )


def _creates_topics(client: AdminClient, broker: int, timeout: float) -> bool | None:
    resource = ConfigResource(ResourceType.BROKER, str(broker))
    try:
        asked = client.describe_configs([resource], request_timeout=max(timeout, 0.1))
    except KafkaException:
        return None
    entries, _ = _told(asked[resource], time.monotonic() + timeout)
    entry = (entries or {}).get("auto.create.topics.enable")
    return None if entry is None else str(entry.value) == "true"


def _topics(client: AdminClient, names: list[str], timeout: float) -> dict[str, TopicSurvey]:
    deadline = time.monotonic() + timeout
    patience = {"request_timeout": max(timeout, 0.1)}
    try:
        described = client.describe_topics(
            TopicCollection(names), include_authorized_operations=True, **patience
        )
        resources = {name: ConfigResource(ResourceType.TOPIC, name) for name in names}
        configured = client.describe_configs(list(resources.values()), **patience)
    except KafkaException as error:
        raise KafkaError(f"Kafka does not tell of topics: {error.args[0].str()}") from error
    found = {}
    for name in names:
        description, problem = _told(described[name], deadline)
        entries, _ = _told(configured[resources[name]], deadline)
        found[name] = _survey(name, description, entries or {}, problem)
    return found


def _survey(name: str, found: Any, entries: Mapping[str, Any], problem: str) -> TopicSurvey:
    if found is None:
        return TopicSurvey(name, problem or "NO_ANSWER")
    parts = found.partitions
    operations = found.authorized_operations
    return TopicSurvey(
        name,
        partitions=len(parts),
        replicas=min((len(part.replicas) for part in parts), default=0),
        leaderless=tuple(part.id for part in parts if part.leader is None or part.leader.id < 0),
        shrunk=tuple(part.id for part in parts if len(part.isr) < len(part.replicas)),
        max_message_bytes=_number(entries, "max.message.bytes"),
        min_insync_replicas=_number(entries, "min.insync.replicas"),
        operations=frozenset(one.name for one in operations) if operations else None,
    )


def _number(entries: Mapping[str, Any], name: str) -> int | None:
    entry = entries.get(name)
    return int(entry.value) if entry is not None and str(entry.value).isdecimal() else None


def _told(answer: Future[Any], deadline: float) -> tuple[Any, str]:
    """Return the answer, or the name of the error instead of one."""
    try:
        return answer.result(max(deadline - time.monotonic(), 0.0) + _GRACE), ""
    except TimeoutError:
        return None, "NO_ANSWER"
    except KafkaException as error:
        return None, str(error.args[0].name())
