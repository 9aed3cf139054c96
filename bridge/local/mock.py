"""librdkafka's mock cluster: Kafka's protocol in this process, without Java and without a disk."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Self

from confluent_kafka import KafkaException, Producer

from bridge.errors import LocalError

if TYPE_CHECKING:
    from types import TracebackType

_silent = logging.getLogger("bridge.local.mock.client")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


class MockKafka:
    """Brokers that live as long as this object; records are kept in memory only.

    Topics are created on first use, with 4 partitions: librdkafka's default, which no property
    changes. It knows no CreateTopics and no DescribeConfigs. Raises LocalError.
    """

    is_real = False

    def __init__(self, *, brokers: int = 1) -> None:
        self._brokers = brokers
        self._host: Producer | None = None
        self._addresses = ""

    @property
    def bootstrap_servers(self) -> str:
        """Every broker's address, `host:port` joined by commas."""
        return self._addresses

    def describe(self) -> str:
        """Return the name for people."""
        return "librdkafka mock"

    def start(self) -> None:
        """Start the brokers."""
        # The property makes the client host the cluster; the client itself sends nothing.
        self._host = Producer({"test.mock.num.brokers": self._brokers}, logger=_silent)
        try:
            brokers = self._host.list_topics(timeout=10).brokers.values()
        except KafkaException as error:
            raise LocalError(f"librdkafka's mock cluster did not start: {error}.") from error
        self._addresses = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)

    def close(self) -> None:
        """End the brokers; their topics are gone."""
        self._host = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
