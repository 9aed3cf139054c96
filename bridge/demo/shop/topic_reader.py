"""Reads the shop's topics from their beginning, to see how often each message came."""

from __future__ import annotations

import logging
import time
import uuid

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from bridge.message import HEADER_IDEMPOTENCY_KEY

_PATIENCE_SECONDS = 30.0
_POLL_SECONDS = 0.2

_silent = logging.getLogger("bridge.demo.shop.client")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


def message_keys(bootstrap_servers: str, topic: str) -> list[str]:
    """Return the idempotency key of each record that stands in the topic now.

    Raises KafkaException where the brokers do not answer.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"demo-reader-{uuid.uuid4()}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        },
        logger=_silent,
    )
    try:
        return _read(consumer, topic)
    finally:
        consumer.close()


def _read(consumer: Consumer, topic: str) -> list[str]:
    until = time.monotonic() + _PATIENCE_SECONDS
    numbers = list(consumer.list_topics(topic, timeout=_PATIENCE_SECONDS).topics[topic].partitions)
    unread = set(numbers)
    consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
    keys: list[str] = []
    while unread and time.monotonic() < until:
        message = consumer.poll(_POLL_SECONDS)
        if message is None:
            continue
        error = message.error()
        if error is None:
            keys.append(_key(message))
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - so named by the client
            unread.discard(message.partition() or 0)
        elif not error.retriable():
            raise KafkaException(error)
    return keys


def _key(message: Message) -> str:
    found = dict(message.headers() or ()).get(HEADER_IDEMPOTENCY_KEY)
    return found.decode() if isinstance(found, bytes) else str(found)
