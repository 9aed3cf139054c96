"""What a consumer tells by metrics and spans."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from bridge.consumer import Received, RetryPolicy
from bridge.consumer.desk import Desk
from bridge.consumer.outcomes import Fate
from bridge.consumer.starts import Starts
from bridge.consumer.watch import Watch
from bridge.telemetry import names
from tests.consumer.conftest import Sent, running, settled, until
from tests.fixtures.postgres import on_one_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.consumer.conftest import NewConsumerFunction, ProduceFunction, Shop
    from tests.fixtures.kafka import KafkaBroker, NewTopicFunction

CONTEXT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemoryMetricReader]:
    """An SDK for metrics, for this test alone."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    monkeypatch.setattr(metrics, "get_meter", provider.get_meter)
    yield reader
    provider.shutdown()


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """An SDK for traces, for this test alone."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


def points(reader: InMemoryMetricReader, topic: str) -> dict[tuple[str, str], Any]:
    """Return values by metric and its extra attribute, for one topic."""
    data = reader.get_metrics_data()
    found: dict[tuple[str, str], Any] = {}
    for resource in data.resource_metrics if data else ():
        for scope in resource.scope_metrics:
            assert scope.scope.name == names.CONSUMER_METER
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    attributes = dict(point.attributes or {})
                    if attributes.pop(names.MESSAGING_DESTINATION_NAME) != topic:
                        continue
                    assert attributes.pop(names.MESSAGING_SYSTEM) == "kafka"
                    assert attributes.pop(names.MESSAGING_CONSUMER_GROUP_NAME) == "observed"
                    extra = ",".join(str(value) for value in attributes.values())
                    value = getattr(point, "value", None)
                    found[metric.name, extra] = (
                        getattr(point, "count", None) if value is None else value
                    )
    return found


@on_one_server
async def test_metrics_of_a_run(
    new_topic: NewTopicFunction,
    produce: ProduceFunction,
    new_consumer: NewConsumerFunction,
    shop: Shop,
    reader: InMemoryMetricReader,
) -> None:
    topic, dead = new_topic(partitions=1), new_topic("dead")
    produce(
        topic,
        [
            Sent("a", 1, key="k", outbox_id=20),
            Sent("b", 2, key="k", outbox_id=10),
            Sent("a", 1, key="k", outbox_id=20),
            Sent("a", 9, key="k", outbox_id=21),
            Sent("c", 3, "order.unknown", key="k"),
            Sent("d", -1, key="k", outbox_id=30),
            Sent("e", 4, key="k", outbox_id=40),
        ],
    )
    # As many attempts as it takes to see the lag.
    patient = RetryPolicy(attempts=100_000, base=0.02, cap=0.1)
    consumer = new_consumer(topic, group="observed", dead_letter_topic=dead, retry=patient)
    hold = {"on": True}

    @consumer.on("order.created")
    async def handle(number: int, message: Received) -> None:
        if number == -1 and message.attempt == 1:
            raise ValueError("once")
        if number == 4 and hold["on"]:
            raise ValueError("until the lag was seen")

    def seen() -> dict[tuple[str, str], Any]:
        return points(reader, topic)

    def open_ones() -> tuple[Any, Any]:
        found = seen()
        return found.get((names.CONSUMER_LAG, "0")), found.get((names.CONSUMER_PENDING, "0"))

    async with running(consumer):
        await until(lambda: open_ones() == (1, 1), "one is left, and in hand")
        hold["on"] = False
        await until(lambda: settled(consumer) == 7, "all are done with")
        await until(lambda: open_ones() == (0, 0), "no lag")
    found = seen()
    assert found[names.CONSUMED_MESSAGES, "poll"] == 7
    assert found[names.CONSUMER_PROCESSED, ""] == 4
    assert found[names.CONSUMER_DUPLICATES, ""] == 1
    assert found[names.CONSUMER_CONFLICTS, ""] == 1
    assert found[names.CONSUMER_UNHANDLED, ""] == 1
    assert found[names.CONSUMER_REORDERINGS, ""] == 1
    assert found[names.CONSUMER_DEAD_LETTERS, "KEY_REUSED"] == 1
    assert found[names.CONSUMER_RETRIES, "True"] >= 2
    assert found[names.PROCESS_DURATION, "process"] >= 6


@on_one_server
async def test_spans_of_a_run(
    new_topic: NewTopicFunction,
    produce: ProduceFunction,
    new_consumer: NewConsumerFunction,
    shop: Shop,
    spans: InMemorySpanExporter,
) -> None:
    """Linked, or a child; the current span in coroutines and in threads; duplicates say so."""
    topic = new_topic(partitions=1)
    produce(
        topic,
        [
            Sent("a", 1, "async", key="k", headers={"traceparent": CONTEXT}),
            Sent("a", 1, "async", key="k", headers={"traceparent": CONTEXT}),
            Sent("b", 2, "sync", key="k", headers={"traceparent": CONTEXT}),
        ],
    )
    consumer = new_consumer(topic, group="observed", trace_as_child=True)
    inside: list[str] = []

    def note() -> None:
        context = trace.get_current_span().get_span_context()
        inside.append(trace.format_span_id(context.span_id))

    @consumer.on("async")
    async def handle(number: int) -> None:
        note()

    @consumer.on("sync")
    def handle_in_thread(number: int) -> None:
        note()

    async with running(consumer):
        await until(lambda: settled(consumer) == 3, "all are done with")
    finished = spans.get_finished_spans()
    assert [span.name for span in finished] == [f"process {topic}"] * 3
    for span in finished:
        assert span.parent is not None
        assert trace.format_span_id(span.parent.span_id) == "b7ad6b7169203331"
        assert len(span.links) == 1
        assert span.attributes is not None
        assert span.attributes[names.MESSAGING_CONSUMER_GROUP_NAME] == "observed"
    ids = [trace.format_span_id(span.context.span_id) for span in finished]
    assert inside == [ids[0], ids[2]]
    marks = [dict(span.attributes or {}).get(names.OUTBOX_DUPLICATE) for span in finished]
    assert marks == [None, True, None]


async def test_records_that_kafka_deleted_before_they_were_read_are_counted(
    kafka: KafkaBroker,
    new_topic: NewTopicFunction,
    produce: ProduceFunction,
    new_consumer: NewConsumerFunction,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = new_topic(partitions=1)
    produce(topic, [Sent(f"m-{n}", n) for n in range(10)])
    first = new_consumer(topic, inbox=None, group="observed")
    first.on("*")(handle_nothing)
    async with running(first):
        await until(lambda: settled(first) == 10, "all are done with")
    produce(topic, [Sent(f"m-{n}", n) for n in range(10, 30)])
    gone = kafka.admin.delete_records([TopicPartition(topic, 0, 25)])
    for future in gone.values():
        future.result(60)
    second = new_consumer(topic, inbox=None, group="observed")
    second.on("*")(handle_nothing)
    async with running(second):
        await until(lambda: settled(second) == 5, "the rest is done with")
        await until(lambda: second.counts.get("gaps") == 15, "the loss is counted")
    assert f"15 records of {topic}/0, from offset 10 on, were deleted by Kafka" in caplog.text


class Log:
    """Stands for aiokafka's consumer; once it is asked where logs begin, more is committed."""

    def __init__(self) -> None:
        self.done: dict[TopicPartition, int] = {}

    def assignment(self) -> set[TopicPartition]:
        return set(self.done)

    async def committed(self, tp: TopicPartition) -> int:
        await asyncio.sleep(0)
        return self.done[tp]

    async def beginning_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        self.done = dict.fromkeys(self.done, 30)
        await asyncio.sleep(0)
        return dict.fromkeys(tps, 25)


async def test_what_is_committed_meanwhile_hides_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of partitions that come soon after others were looked at."""
    monkeypatch.setattr("bridge.consumer.starts._PAUSE", 3600)
    watch, log = Watch(), Log()
    starts = Starts(watch)
    looking = asyncio.create_task(starts.look_forever(log, Desk(10, 1000)))
    for given, lost in (([0, 1], 30), ([2], 45)):
        log.done = {TopicPartition("t", number): 10 for number in given}
        starts.assigned(log.done)
        await until(lambda lost=lost: watch.total(names.CONSUMER_GAPS) == lost, "the loss is told")  # type: ignore[misc]
    looking.cancel()


async def handle_nothing(payload: Any) -> None:
    del payload


def seen(key: bytes | None, outbox_id: int | None, **headers: str) -> Received:
    return Received("t", 0, 0, 0, key, b"1", headers, "m", "e", outbox_id, "application/json", 1)


def test_only_older_ids_of_the_same_key_are_reorderings() -> None:
    watch = Watch()
    for key, outbox_id in (
        (b"a", 5),
        (b"b", 3),
        (b"a", 9),
        (None, 1),
        (b"a", None),
        (b"a", 7),
        (b"a", 8),
        (b"a", 9),
    ):
        watch.settled("t", seen(key, outbox_id), Fate.PROCESSED)
    watch.settled("t", seen(b"a", 1), Fate.DUPLICATE)
    assert watch.total(names.CONSUMER_REORDERINGS) == 2
    assert watch.total(names.CONSUMER_GAPS) == 0
    watch.forget()
    watch.settled("t", seen(b"a", 1), Fate.PROCESSED)
    assert watch.total(names.CONSUMER_REORDERINGS) == 2


def test_holes_in_a_sequence_of_the_writer_are_gaps() -> None:
    watch = Watch("version")
    for version in ("4", "5", "8", "nonsense", "9", "7"):
        watch.settled("t", seen(b"a", None, version=version), Fate.PROCESSED)
    assert watch.total(names.CONSUMER_GAPS) == 2
    assert watch.total(names.CONSUMER_REORDERINGS) == 1
