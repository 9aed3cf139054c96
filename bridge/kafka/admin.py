"""Questions and orders to the cluster that a producer cannot put: limits, rights, new topics."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined] # public, though not marked so
    AclOperation,
    AdminClient,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from bridge.kafka.failures import verdict_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

    from confluent_kafka.admin import (  # type: ignore[attr-defined] # as above
        ClusterMetadata,
    )

T = TypeVar("T")

_LIMIT = "max.message.bytes"
_BROKER_DEFAULT = -1
_SHORTEST = 0.05
_PROBES = 3
_PROBED = "__consumer_offsets"
"""One small topic instead of all; that it is missing or forbidden is an answer as well."""
_GRACE = 0.5
"""Seconds beyond a request's own time-out until its answer counts as lost."""

# The producer already reports lost connections; a second voice would only repeat it.
_silent = logging.getLogger("bridge.kafka.admin")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False

_PRODUCER_ONLY = frozenset(
    {
        "enable.idempotence",  # would ask the cluster for a producer id
        "enable.gapless.guarantee",
        "transactional.id",
        "transaction.timeout.ms",
        "statistics.interval.ms",
        "debug",
    }
)


def _ignore(_: object) -> None:
    """Leave an error of the connection to the producer, which meets it too."""


_OWN: Mapping[str, Any] = MappingProxyType(
    {
        "error_cb": _ignore,
        # Topics are created on order only; what a producer asks for, brokers may create.
        "allow.auto.create.topics": False,
        # A frozen broker is asked no longer; when its connection is lost, another one is tried.
        "socket.timeout.ms": 3_000,
        "socket.connection.setup.timeout.ms": 5_000,
    }
)


class NoAnswer(Exception):  # noqa: N818 - the way in which a question ends, not a fault
    """The cluster did not answer in time, or cannot at the moment."""


@dataclass(frozen=True, slots=True)
class TopicRules:
    """What a topic accepts: `max_message_bytes` is None where the cluster does not tell."""

    max_message_bytes: int | None = None
    writable: bool = True


def admin_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a producer's librdkafka settings as an admin client's: the way to the cluster."""
    taken = {
        name: value
        for name, value in settings.items()
        # How a token is fetched belongs to the way to the cluster, other callbacks do not.
        if name not in _PRODUCER_ONLY and (name == "oauth_cb" or not name.endswith("_cb"))
    }
    return {**taken, **_OWN}


class ClusterAdmin:
    """An admin client of its own connections, made when first needed; safe to use from threads.

    `settings`: librdkafka's, as the producer has them. `timeout` is in seconds everywhere.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = admin_settings(settings)
        self._lock = threading.Lock()
        self._made: AdminClient | None = None

    def rules(self, topic: str, timeout: float) -> TopicRules:
        """Return what the topic accepts; what the cluster refuses to tell is unknown.

        Raises NoAnswer.
        """
        deadline = time.monotonic() + timeout
        request_timeout = max(timeout, _SHORTEST)
        resource = ConfigResource(ResourceType.TOPIC, topic)
        limits = self._ask(
            lambda client: client.describe_configs([resource], request_timeout=request_timeout)
        )
        rights = self._ask(
            lambda client: client.describe_topics(
                TopicCollection([topic]),
                include_authorized_operations=True,
                request_timeout=request_timeout,
            )
        )
        entries = _told(limits[resource], deadline) if limits else None
        found = _told(rights[topic], deadline) if rights else None
        limit = entries.get(_LIMIT) if entries else None
        operations = found.authorized_operations if found else None
        return TopicRules(
            max_message_bytes=int(limit.value) if limit and limit.value else None,
            # A cluster without authorizer allows everything; an old one tells nothing.
            writable=not operations or AclOperation.WRITE in operations,
        )

    def create(self, topic: str, timeout: float) -> str | None:
        """Create a topic with the brokers' own numbers of partitions and replicas.

        Returns None where it exists now, else why it does not.
        """
        new = NewTopic(topic, num_partitions=_BROKER_DEFAULT, replication_factor=_BROKER_DEFAULT)
        request_timeout = max(timeout, _SHORTEST)
        try:
            created = self._client().create_topics([new], request_timeout=request_timeout)
            created[topic].result(request_timeout + _GRACE)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return None
            return str(error.args[0].str())
        except TimeoutError:
            return f"the cluster did not answer within {request_timeout:.1f} s"
        return None

    def list_topics(self, topic: str, timeout: float) -> ClusterMetadata:
        """Return what the cluster says of a topic, creating none; raises KafkaException."""
        answer: ClusterMetadata = self._client().list_topics(topic, timeout=timeout)
        return answer

    def answers(self, timeout: float) -> bool:
        """Tell whether any broker of the cluster answers within `timeout`."""
        deadline = time.monotonic() + timeout
        # Each try may have hit a frozen broker of a cluster that is otherwise well.
        patience = max(timeout / _PROBES, _SHORTEST)
        while True:
            try:
                self.list_topics(_PROBED, patience)
            except KafkaException:
                if time.monotonic() + _SHORTEST > deadline:
                    return False
                time.sleep(_SHORTEST)  # an error at once must not spin
            else:
                return True

    def close(self) -> None:
        """Let go of the connections; a later question makes new ones."""
        with self._lock:
            self._made = None

    def _client(self) -> AdminClient:
        with self._lock:
            if self._made is None:
                self._made = AdminClient(self._settings, logger=_silent)
            return self._made

    def _ask(self, question: Callable[[AdminClient], T]) -> T | None:
        """Put a question; None where the client itself cannot, such as with an old librdkafka."""
        try:
            return question(self._client())
        except KafkaException:
            return None


def _told(answer: Future[T], deadline: float) -> T | None:
    """Return the answer, None where the cluster refuses to tell; raises NoAnswer."""
    try:
        return answer.result(max(deadline - time.monotonic(), 0.0) + _GRACE)
    except TimeoutError as error:
        raise NoAnswer from error
    except KafkaException as error:
        if not verdict_of(error.args[0].code()).charged:
            raise NoAnswer(error.args[0].str()) from error
        return None
