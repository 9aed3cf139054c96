"""What Kafka and librdkafka do, which the relay is built upon: plain producers with its settings.

Where a new version changes one of these facts, the part of the relay that lives with it may go.
"""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, Producer

from bridge.kafka.failures import FailureClass, classify
from bridge.kafka.partitions import partition_of
from tests.fixtures.kafka import read_topic, silent
from tests.fixtures.waiting import wait_until
from tests.kafka.producers import Outcomes, make, send, send_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Message

    from tests.fixtures.kafka import KafkaBroker, NewTopicFunction
    from tests.kafka.conftest import StrictKafka

SMALL = {"max.message.bytes": "2000"}
TOO_LARGE = "g" * 5000


@pytest.fixture
def real(kafka: KafkaBroker) -> KafkaBroker:
    if not kafka.is_real:
        pytest.skip("the mock cluster knows no max.message.bytes")
    return kafka


def numbered(first: int, last: int) -> list[str]:
    return [f"{number:05d}" for number in range(first, last + 1)]


def standing_in(servers: str, topic: str) -> list[str]:
    return [(record.value or b"").decode() for record in read_topic(servers, topic)]


def test_one_record_too_large_takes_its_whole_batch_along(
    real: KafkaBroker, new_topic: NewTopicFunction
) -> None:
    topic = new_topic(partitions=1, config=SMALL)
    producer = make(real.bootstrap_servers, linger_ms=5000)
    innocent = numbered(1, 7)

    outcomes = send_all(producer, topic, [*innocent[:3], TOO_LARGE, *innocent[3:]])

    assert set(outcomes.refused) == {*innocent, TOO_LARGE}
    assert outcomes.codes == {"MSG_SIZE_TOO_LARGE"}
    assert standing_in(real.bootstrap_servers, topic) == []


def test_a_batch_over_the_limit_fails_although_each_of_its_records_is_small(
    real: KafkaBroker, new_topic: NewTopicFunction
) -> None:
    topic = new_topic(partitions=1, config=SMALL)
    many = numbered(1, 1000)

    wide = send_all(make(real.bootstrap_servers, linger_ms=5000), topic, many)
    assert set(wide.refused) == set(many)
    assert wide.codes == {"MSG_SIZE_TOO_LARGE"}

    narrow = send_all(make(real.bootstrap_servers, linger_ms=5000, batch_size=1800), topic, many)
    assert narrow.taken == many
    assert standing_in(real.bootstrap_servers, topic) == many


def test_records_behind_a_refused_one_go_through(
    real: KafkaBroker, new_topic: NewTopicFunction
) -> None:
    topic = new_topic(partitions=1, config=SMALL)
    producer = make(real.bootstrap_servers, batch_num_messages=1)

    outcomes = send_all(producer, topic, ["1", "2", TOO_LARGE, "4", "5"])

    assert set(outcomes.refused) == {TOO_LARGE}
    assert standing_in(real.bootstrap_servers, topic) == ["1", "2", "4", "5"]


def test_the_default_partitioner_sends_keys_elsewhere_than_javas(
    kafka: KafkaBroker, new_topic: NewTopicFunction
) -> None:
    topic = new_topic(partitions=6)
    keys = numbered(1, 200)
    plain = Producer({"bootstrap.servers": kafka.bootstrap_servers}, logger=silent)

    chosen = send_all(plain, topic, keys).partitions
    ours = send_all(make(kafka.bootstrap_servers), topic, keys).partitions

    partitions = len(kafka.admin.list_topics(topic, timeout=30).topics[topic].partitions)
    javas = {key: partition_of(key.encode(), partitions) for key in keys}
    assert ours == javas
    assert chosen != javas


def test_the_partition_of_any_key_is_known_beforehand(
    kafka: KafkaBroker, new_topic: NewTopicFunction
) -> None:
    topic = new_topic(partitions=6)
    producer = make(kafka.bootstrap_servers)
    keys = [b"", b"\0", b"a", "ключ".encode(), *(bytes(range(n)) for n in range(2, 60))]
    reports: list[Message] = []

    for key in keys:
        producer.produce(topic, b"", key, on_delivery=lambda _, report: reports.append(report))
    assert producer.flush(60) == 0

    partitions = len(kafka.admin.list_topics(topic, timeout=30).topics[topic].partitions)
    assert len(reports) == len(keys)
    for report in reports:
        assert report.partition() == partition_of(report.key() or b"", partitions)


def test_delivery_reports_carry_no_headers(kafka: KafkaBroker, new_topic: NewTopicFunction) -> None:
    topic = new_topic(partitions=1)
    producer = make(kafka.bootstrap_servers)
    reports: list[Message] = []
    producer.produce(
        topic, b"v", b"k", headers={"outbox-id": "7"}, on_delivery=lambda _, m: reports.append(m)
    )
    assert producer.flush(60) == 0
    assert [report.headers() for report in reports] == [None]
    (record,) = read_topic(kafka.bootstrap_servers, topic)
    assert record.headers == {"outbox-id": "7"}


def test_a_missing_topic_fails_its_own_records_after_a_while_and_delays_no_others(
    strict_kafka: StrictKafka,
) -> None:
    there = strict_kafka.new_topic()
    producer = make(strict_kafka.bootstrap_servers, topic_metadata_propagation_max_ms=5000)
    lost = send(producer, "nowhere", numbered(1, 5))

    others = send(producer, there, numbered(1, 100))
    wait_until(lambda: producer.poll(0.02) + 1 and len(others) == 100, "the others are sent")
    assert others.taken == numbered(1, 100)
    assert len(lost) == 0

    assert producer.flush(60) == 0
    assert set(lost.refused) == set(numbered(1, 5))
    for error in lost.refused.values():
        assert error.code() in {KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART}
        assert classify(error).failure_class is FailureClass.DESTINATION


@contextmanager
def frozen(strict_kafka: StrictKafka) -> Iterator[None]:
    strict_kafka.local.suspend()
    try:
        yield
    finally:
        strict_kafka.local.resume()


class Wire:
    """How many requests of a producer wait for their answer, from librdkafka's statistics."""

    def __init__(self) -> None:
        self.waiting = 0

    def read(self, text: str) -> None:
        brokers = json.loads(text)["brokers"].values()
        self.waiting = max((broker["waitresp_cnt"] for broker in brokers), default=0)


def test_purging_the_queue_returns_only_what_was_surely_not_sent(
    strict_kafka: StrictKafka,
) -> None:
    topic = strict_kafka.new_topic()
    wire = Wire()
    producer = make(
        strict_kafka.bootstrap_servers,
        batch_num_messages=1,
        statistics_interval_ms=50,
        stats_cb=wire.read,
    )
    assert send_all(producer, topic, ["00000"]).taken == ["00000"]
    outcomes = Outcomes()

    with frozen(strict_kafka):
        send(producer, topic, numbered(1, 20), outcomes)
        wait_until(lambda: producer.poll(0.02) + 1 and wire.waiting >= 5, "five are on their way")
        producer.purge(in_queue=True, in_flight=False, blocking=False)
        wait_until(lambda: producer.poll(0.02) + 1 and len(outcomes) > 0, "the queue is returned")
    assert producer.flush(60) == 0

    assert outcomes.codes == {"_PURGE_QUEUE"}
    assert outcomes.taken
    assert sorted([*outcomes.taken, *outcomes.refused]) == numbered(1, 20)
    assert standing_in(strict_kafka.bootstrap_servers, topic) == ["00000", *outcomes.taken]
    # And the producer goes on, although its sequence now has a gap.
    later = send_all(producer, topic, numbered(21, 40))
    assert later.taken == numbered(21, 40)
    assert standing_in(strict_kafka.bootstrap_servers, topic)[-20:] == numbered(21, 40)


FREEZE_SECONDS = 4.0


def test_only_the_same_producer_brings_every_record_once_and_in_order_through_a_frozen_broker(
    strict_kafka: StrictKafka,
) -> None:
    """Three ways through the same outage: patience, a short message time-out, a new producer."""
    servers = strict_kafka.bootstrap_servers
    ways: dict[str, dict[str, Any]] = {
        "patient": {},
        "hasty": {"message_timeout_ms": 1000},
        "replaced": {},
    }
    topics = {way: strict_kafka.new_topic() for way in ways}
    producers = {
        way: make(servers, batch_num_messages=1, **properties) for way, properties in ways.items()
    }
    outcomes = {way: send_all(producers[way], topics[way], numbered(1, 5)) for way in ways}

    with frozen(strict_kafka):
        for way, producer in producers.items():
            send(producer, topics[way], numbered(6, 25), outcomes[way])
        threading.Event().wait(FREEZE_SECONDS)  # the fault itself: so long nothing answers
        for producer in producers.values():
            producer.poll(0)
        producers["replaced"].purge(in_queue=True, in_flight=True, blocking=False)
        wait_until(
            lambda: producers["replaced"].poll(0.02) + 1 and len(outcomes["replaced"]) == 25,
            "all of them are given up",
        )
        given_up = sorted(outcomes["replaced"].refused)
        again = make(servers, batch_num_messages=1)
        send(again, topics["replaced"], given_up, outcomes["replaced"])
    for producer in (producers["patient"], producers["hasty"], again):
        assert producer.flush(60) == 0

    assert outcomes["patient"].refused == {}
    assert standing_in(servers, topics["patient"]) == numbered(1, 25)

    assert outcomes["hasty"].codes == {"_MSG_TIMED_OUT"}
    assert set(outcomes["hasty"].refused) & set(standing_in(servers, topics["hasty"]))

    assert given_up == numbered(6, 25)
    twice = standing_in(servers, topics["replaced"])
    assert set(twice) == set(numbered(1, 25))
    assert len(twice) > 25
