"""The idempotent producer: its settings, its start, its errors in words."""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException

# The class itself: `confluent_kafka.Producer` may have been replaced by an instrumentation, which
# would make a span of each record and write its own context over the row's.
from confluent_kafka.cimpl import Producer

from bridge.errors import ConfigurationError, KafkaError
from bridge.kafka.properties import canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_client_log = logging.getLogger("bridge.kafka.client")


class Calm(logging.Filter):
    """Lets a line of librdkafka through only if none of its kind came in the last `seconds`.

    A client without brokers reports each attempt to connect, to each broker. Its lines begin with
    their kind: `FAIL [rdkafka#producer-1] …`.
    """

    def __init__(self, seconds: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._seconds = seconds
        self._clock = clock
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether to log the line."""
        kind = record.getMessage().partition(" ")[0]
        now = self._clock()
        if now - self._last.get(kind, -math.inf) < self._seconds:
            return False
        self._last[kind] = now
        return True


_client_log.addFilter(Calm())

# Above librdkafka's own default of 1,000,000, so that a payload at enqueue's limit passes with its
# key and headers; below the broker's default max.message.bytes of 1,048,588.
MESSAGE_MAX_BYTES = 1_048_000

DEFAULTS: dict[str, Any] = {
    "enable.idempotence": True,
    "acks": "all",
    "max.in.flight.requests.per.connection": 5,
    # Agrees with the Java client and aiokafka; librdkafka's own default does not.
    "partitioner": "murmur2_random",
    # Waiting for more records triples the median latency and gains a drain nothing.
    "linger.ms": 0,
    "compression.type": "lz4",
    "batch.size": 262_144,
    "message.max.bytes": MESSAGE_MAX_BYTES,
    # Shorter than the lease: what a frozen relay still holds must have expired when its rows move.
    "message.timeout.ms": 90_000,
    # The relay bounds what is in flight by rows and bytes; this queue must not be the bound.
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 1_048_576,
    "socket.keepalive.enable": True,
    # A frozen broker is given up after this, and its partitions are sent to their new leaders. With
    # librdkafka's 60 s they would stall for a minute; what is sent again is told apart by sequence.
    "socket.timeout.ms": 10_000,
    "reconnect.backoff.max.ms": 2_000,
    # Errors only: at warning level each start of a fresh broker is told several times over.
    "log_level": 3,
}


def producer_settings(
    bootstrap_servers: str, properties: Mapping[str, Any], client_id: str
) -> dict[str, Any]:
    """Return librdkafka's settings: the defaults, then the user's properties, aliases known."""
    if not bootstrap_servers:
        raise ConfigurationError(
            "no Kafka brokers are given; set OUTBOX_BRIDGE_KAFKA_BOOTSTRAP_SERVERS=host:9092 "
            "or [kafka] bootstrap_servers in the settings file"
        )
    given = {canonical(name) for name in properties}
    return {
        **{name: value for name, value in DEFAULTS.items() if canonical(name) not in given},
        "client.id": client_id,
        **properties,
        "bootstrap.servers": bootstrap_servers,
    }


def number(settings: Mapping[str, Any], name: str) -> int:
    """Return the value of a numeric property, also where it was written as text."""
    value = settings.get(name, DEFAULTS[name])
    for given, other in settings.items():
        if canonical(given) == name:
            value = other
    try:
        return int(value)
    except ValueError:
        return int(DEFAULTS[name])  # librdkafka names the malformed number itself


def create_producer(
    settings: Mapping[str, Any],
    *,
    on_error: Callable[[ClientError], None],
) -> Producer:
    """Start a producer; an unusable property raises ConfigurationError that names it.

    librdkafka's own log lines come out of the logger `bridge.kafka.client`.
    """
    try:
        return Producer({**settings, "error_cb": on_error}, logger=_client_log)
    except KafkaException as error:
        raise ConfigurationError(
            f"librdkafka refuses the [kafka] settings: {error.args[0].str()}"
        ) from error


def check_reachable(producer: Producer, timeout: float) -> int:
    """Return the number of brokers; raises KafkaError when none answers in `timeout` seconds."""
    try:
        return len(producer.list_topics(timeout=timeout).brokers)
    except KafkaException as error:
        raise KafkaError(f"Kafka does not answer: {error.args[0].str()}") from error


def error_name(error: ClientError) -> str:
    """Return librdkafka's name of an error code, for example MSG_SIZE_TOO_LARGE."""
    return str(error.name())
