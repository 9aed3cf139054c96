"""The size of a record, as the broker counts it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from bridge.encoding.sizes import record_size
from tests.kafka.producers import make

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

    from tests.fixtures.kafka import KafkaBroker, NewTopicFunction

LIMIT = 3000

SHAPES: dict[str, tuple[str | bytes | None, dict[str, str | bytes | None]]] = {
    "plain": ("order-7", {"outbox-id": "7", "idempotency-key": "order-7"}),
    "no key": (None, {}),
    "other letters": ("заказ-7", {"größe": "∞" * 40}),
    "many headers": (b"\0", {f"header-{number}": "x" * number for number in range(40)}),
    "empty": ("", {"": None, "none": None, "bytes": b"\xff"}),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_records_up_to_the_limit_are_taken_and_the_next_byte_is_refused(
    kafka: KafkaBroker, new_topic: NewTopicFunction, shape: str
) -> None:
    if not kafka.is_real:
        pytest.skip("the mock cluster knows no max.message.bytes")
    topic = new_topic(partitions=1, config={"max.message.bytes": str(LIMIT)})
    producer = make(kafka.bootstrap_servers, batch_num_messages=1)
    key, headers = SHAPES[shape]
    reported: dict[int, str | None] = {}

    def send(value: bytes) -> None:
        size = record_size(key, value, headers)

        def delivered(error: KafkaError | None, _: Message) -> None:
            reported[size] = None if error is None else error.name()

        producer.produce(topic, value, key, headers=headers, on_delivery=delivered)

    room = LIMIT - record_size(key, b"", headers)
    for length in range(room - 6, room + 4):
        send(os.urandom(length))
    assert producer.flush(60) == 0

    assert min(reported) < LIMIT < max(reported)
    assert reported == {size: None if size <= LIMIT else "MSG_SIZE_TOO_LARGE" for size in reported}
