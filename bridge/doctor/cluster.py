"""What the checks of Kafka look at: the cluster as it answered, the settings, the rows in use."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bridge.kafka.producer import number, producer_settings
from bridge.kafka.survey import ClusterSurvey, survey
from bridge.routing import topic_problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.kafka.survey import TopicSurvey
    from bridge.routing import Router
    from bridge.settings import Settings


@dataclass(frozen=True, slots=True)
class SentRow:
    """A row that was sent lately: its keys, and where its record stands."""

    destination: str
    message_key: str
    ordering_key: str | None
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Use:
    """What the database tells of destinations: open rows of each in use, and rows sent lately."""

    destinations: Mapping[str, int] = field(default_factory=dict)
    sent: tuple[SentRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Cluster:
    """Everything that the checks of Kafka need. `use` is None where the database does not tell."""

    settings: Settings
    producer: Mapping[str, Any]
    router: Router
    use: Use | None
    survey: ClusterSurvey

    @property
    def servers(self) -> str:
        """The addresses that were asked."""
        return self.settings.kafka.bootstrap_servers

    @property
    def creates_topics(self) -> bool:
        """Tell whether relay or brokers make a missing topic when it is needed."""
        by_relay = self.settings.relay.missing_topic == "create"
        return by_relay or bool(self.survey.creates_topics)

    @property
    def topics(self) -> list[TopicSurvey]:
        """The topics that are there and that we may see."""
        return [topic for topic in self.survey.topics.values() if not topic.error]

    @property
    def message_max_bytes(self) -> int:
        """The producer's limit for a record."""
        return number(self.producer, "message.max.bytes")

    def configured(self) -> dict[str, str]:
        """Return the topics that settings name outright, and by which route."""
        named = {}
        for route in self.settings.routes:
            if route.dead_letter is not None:
                named[route.dead_letter] = f"dead_letter of the route of {route.destination}"
            topic = route.topic or route.destination
            if route.topic is not None or topic_problem(topic) is None:
                named[topic] = f"the route of {route.destination}"
        return named


def look_at_cluster(settings: Settings, use: Use | None, timeout: float) -> Cluster:
    """Ask the cluster for everything; raises KafkaError and ConfigurationError."""
    servers = settings.kafka.require_bootstrap_servers()
    producer = producer_settings(servers, settings.kafka.properties, "outbox-bridge-doctor")
    router = settings.router()
    empty = Cluster(settings, producer, router, use, ClusterSurvey(0, controller=False))
    wanted = set(empty.configured())
    if use is not None:
        wanted |= {router.route(name).topic for name in use.destinations}
        wanted |= {row.topic for row in use.sent}
    found = survey(producer, [one for one in wanted if topic_problem(one) is None], timeout)
    return Cluster(settings, producer, router, use, found)
