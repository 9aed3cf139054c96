"""A relay that a test runs to its end, and the records that it leaves in Kafka."""

from __future__ import annotations

import json
import logging
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from bridge.errors import ConfigurationError
from bridge.errors import KafkaError as OutboxKafkaError
from bridge.relay.supervisor import run_relay
from bridge.setting_checks import contradictions
from bridge.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka import Message

    from bridge.relay.tally import RelayReport

_silent = logging.getLogger("bridge.testing.client")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


@dataclass(frozen=True, slots=True)
class KafkaRecord:
    """One record as a consumer receives it."""

    topic: str
    partition: int
    offset: int
    key: str | None
    value: bytes | None
    headers: dict[str, str]

    @property
    def payload(self) -> Any:
        """The value decoded as JSON; None for a tombstone."""
        return None if self.value is None else json.loads(self.value)


class OutboxRelay:
    """Sends what is committed in the outbox at `database_url` to Kafka, in this process.

    `settings` are further ones by section, as in the settings file: `{"routes": [{"destination":
    "orders", "topic": "shop.orders"}]}`. Neither the environment nor a settings file is read: a
    test must not send the rows of whatever database the shell happens to name.
    """

    def __init__(
        self,
        database_url: str,
        bootstrap_servers: str,
        *,
        schema: str = "public",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        given: dict[str, Any] = dict(settings or {})
        database = {"url": database_url, "schema": schema} | dict(given.pop("database", {}))
        kafka = {"bootstrap_servers": bootstrap_servers} | dict(given.pop("kafka", {}))
        self.settings = Settings(database=database, kafka=kafka, **given)  # type: ignore[arg-type] # read by pydantic
        if problems := contradictions(self.settings):
            raise ConfigurationError("\n".join(problems))

    @property
    def bootstrap_servers(self) -> str:
        """The brokers, for consumers of the test's own."""
        return self.settings.kafka.bootstrap_servers

    def drain(self) -> RelayReport:
        """Send every row that is due and return once all are settled; says what it did.

        Rows of an open transaction are not there for a relay, and rows for later stay (`later`).
        Raises OutboxError where it cannot run.
        """
        return run_relay(self.settings, until_empty=True)

    def records(self, topic: str, timeout: float = 10.0) -> list[KafkaRecord]:
        """Return all records of a topic, partition by partition, in the order of their offsets.

        None where the topic does not exist. Raises KafkaError after `timeout` seconds.
        """
        # The consumer only assigns, so the group is a name without a member.
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": f"outbox-bridge-testing-{uuid.uuid4()}",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "allow.auto.create.topics": False,
            },
            logger=_silent,
        )
        try:
            return _read(consumer, topic, timeout)
        except KafkaException as error:
            raise OutboxKafkaError(
                f"topic {topic} at {self.bootstrap_servers} cannot be read: {error}"
            ) from error
        finally:
            consumer.close()


def _read(consumer: Consumer, topic: str, timeout: float) -> list[KafkaRecord]:
    deadline = time.monotonic() + timeout
    partitions = consumer.list_topics(topic, timeout=timeout).topics[topic].partitions
    unread = set(partitions)
    if not unread:
        return []
    consumer.assign([TopicPartition(topic, number, 0) for number in unread])
    records = []
    while unread:
        message = consumer.poll(0.1)
        if message is None:
            if time.monotonic() > deadline:
                raise OutboxKafkaError(
                    f"topic {topic}: partitions {sorted(unread)} were not read to their end within "
                    f"{timeout:g} s"
                )
            continue
        error = message.error()
        if error is None:
            records.append(_record(message))
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's public code
            unread.discard(message.partition())
        else:
            raise KafkaException(error)
    return sorted(records, key=lambda record: (record.partition, record.offset))


def _record(message: Message) -> KafkaRecord:
    headers: Any = message.headers() or []
    key: Any = message.key()
    return KafkaRecord(
        str(message.topic()),
        int(message.partition() or 0),
        int(message.offset() or 0),
        None if key is None else key.decode(),
        message.value(),
        {name: (value or b"").decode() for name, value in headers},
    )
