"""Producers as the relay makes them, and what became of each record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.kafka.producer import create_producer, producer_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from confluent_kafka import KafkaError, Message, Producer


def settings(bootstrap_servers: str, **properties: Any) -> dict[str, Any]:
    """The relay's settings for librdkafka; properties with `_` for `.` in their names."""
    named = {
        name if name.endswith("_cb") else name.replace("_", "."): value
        for name, value in properties.items()
    }
    # What a broker compares with its limits must not depend on how well a text packs.
    return producer_settings(bootstrap_servers, {"compression.type": "none", **named}, "tests")


def make(bootstrap_servers: str, **properties: Any) -> Producer:
    return create_producer(settings(bootstrap_servers, **properties), on_error=lambda _: None)


class Outcomes:
    """What a producer reported: the values that were taken and the errors of the others."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.refused: dict[str, KafkaError] = {}
        self.partitions: dict[str, int | None] = {}

    def report(self, value: str) -> Callable[[KafkaError | None, Message], None]:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self.taken.append(value)
                self.partitions[value] = message.partition()
            else:
                self.refused[value] = error

        return delivered

    @property
    def codes(self) -> set[str]:
        return {str(error.name()) for error in self.refused.values()}

    def __len__(self) -> int:
        return len(self.taken) + len(self.refused)


def send(
    producer: Producer, topic: str, values: Iterable[str], outcomes: Outcomes | None = None
) -> Outcomes:
    """Hand records to the producer, each value as its own key, and wait for nothing."""
    seen = Outcomes() if outcomes is None else outcomes
    for value in values:
        producer.produce(topic, value, key=value[:200], on_delivery=seen.report(value))
    return seen


def send_all(producer: Producer, topic: str, values: Iterable[str]) -> Outcomes:
    """Send records and wait until all are reported."""
    outcomes = send(producer, topic, values)
    assert producer.flush(60) == 0
    return outcomes
