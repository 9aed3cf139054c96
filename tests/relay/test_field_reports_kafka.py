"""Real bugs of comparable systems, made again: the producer and the topics.

Each docstring names the report and tells the situation in our own words.
"""

from __future__ import annotations

import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.fixtures.kafka import read_topic, silent
from tests.fixtures.postgres import on_one_server
from tests.fixtures.produce_errors import OUT_OF_ORDER_SEQUENCE_NUMBER, ProduceErrors
from tests.fixtures.proxied_kafka import ProxiedKafka
from tests.fixtures.relays import PATIENCE, assert_places_hold, ids_of
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.relays import Outbox, RelayProcess, StartRelayFunction

# The subject is the producer; PostgreSQL's version makes no difference to it.
pytestmark = on_one_server


@pytest.fixture(scope="module")
def errors() -> ProduceErrors:
    """What the broker of this module answers instead of the truth."""
    return ProduceErrors()


@pytest.fixture(scope="module")
def broker(
    uses_real_kafka: bool,  # noqa: FBT001 - a fixture's name
    errors: ProduceErrors,
) -> Iterator[ProxiedKafka]:
    """A broker that creates no topic by itself, behind a proxy."""
    if not uses_real_kafka:
        pytest.skip("needs a real Kafka that answers through a proxy")
    with ProxiedKafka(tap=errors) as running:
        yield running


class NewTopicFunction(Protocol):
    def __call__(self, config: dict[str, str] | None = None, partitions: int = 1) -> str: ...


@pytest.fixture
def create(broker: ProxiedKafka) -> NewTopicFunction:
    """Create a topic of one partition, so that records share their batches."""
    admin = AdminClient({"bootstrap.servers": broker.direct_servers}, logger=silent)

    def make(config: dict[str, str] | None = None, partitions: int = 1) -> str:
        name = f"orders-{uuid.uuid4().hex[:8]}"
        new = NewTopic(name, num_partitions=partitions, config=config or {})
        admin.create_topics([new])[name].result(30)
        return name

    return make


@pytest.fixture
def start(broker: ProxiedKafka, start_relay: StartRelayFunction) -> StartRelayFunction:
    """Start relays that use this module's broker, through its proxy."""
    place = {"OUTBOX_BRIDGE_KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers}

    def started(*args: str, wait: bool = True, **settings: Any) -> RelayProcess:
        return start_relay(*args, wait=wait, env=place, **settings)

    return started


def test_a_fatal_error_of_the_idempotent_producer_needs_no_restart_by_hand(
    outbox: Outbox,
    broker: ProxiedKafka,
    errors: ProduceErrors,
    create: NewTopicFunction,
    start: StartRelayFunction,
) -> None:
    """confluent-kafka-python#1128: after a fatal error every further message fails.

    An idempotent producer gives up for good when it cannot tell any more what the broker has; the
    application went on calling it and got the same error until somebody restarted the process.
    """
    topic = create()
    warm = outbox.add(5, topic, prefix="warm")
    relay = start()
    outbox.wait_for("SENT", warm)

    errors.pending.append(OUT_OF_ORDER_SEQUENCE_NUMBER)
    hit = outbox.add(40, topic, prefix="hit")
    hit += outbox.add(10, topic, prefix="hit-in-order", ordering_key="k")
    outbox.wait_for("SENT", hit)
    later = outbox.add(20, topic, prefix="later")
    outbox.wait_for("SENT", later)

    assert errors.given
    assert relay.process.running
    rows = outbox.rows()
    assert all(row.retry_count == 0 for row in rows)
    records = read_topic(broker.direct_servers, topic, timeout=60)
    assert_places_hold(rows, records)
    # The broker had taken what the error told of, so some of it came twice, and nothing else.
    copies = Counter(ids_of(records))
    assert copies.keys() == {row.outbox_id for row in rows}
    assert {outbox_id for outbox_id, count in copies.items() if count > 1} <= set(hit)
    assert relay.stop()["lost_leases"] == 0


def test_headers_travel_on_every_way_that_a_record_can_take(
    outbox: Outbox, broker: ProxiedKafka, create: NewTopicFunction, start: StartRelayFunction
) -> None:
    """confluent-kafka-python#2320: a call for whole batches took headers and dropped them.

    No error, no warning: consumers found records without the headers that the caller had given.
    """
    topic = create({"max.message.bytes": "3000"})
    headers = '{"traceparent": "00-1-2-03", "leer": "", "ünicode": "wörld"}'
    plain = outbox.add(50, topic, prefix="plain", headers=headers)
    ordered = outbox.add(50, topic, prefix="ordered", headers=headers, ordering_key="k")
    fetched = outbox.add(
        5, topic, prefix="fetched", headers=headers, payload_json='"' + "x" * 1500 + '"'
    )
    # Its neighbours are refused with it and sent again on their own.
    outbox.add(1, topic, prefix="guilty", headers=headers, payload_json='"' + "x" * 9000 + '"')
    alone = outbox.add(20, topic, prefix="alone", headers=headers)
    relay = start(relay_inline_payload_bytes=1000, kafka_compression_type="none")

    outbox.wait_for("SENT", plain + ordered + fetched + alone)

    records = read_topic(broker.direct_servers, topic, timeout=60)
    assert len(records) == 125
    for record in records:
        assert record.headers["traceparent"] == "00-1-2-03"
        assert record.headers["leer"] == ""
        assert record.headers["ünicode"] == "wörld"
        assert record.headers["event-type"] == "order.created"
    relay.stop()


@pytest.mark.parametrize("how", ["SIGTERM amid the rows", "its own end"])
def test_a_full_producer_queue_loses_nothing_at_the_end(
    outbox: Outbox,
    broker: ProxiedKafka,
    create: NewTopicFunction,
    start: StartRelayFunction,
    how: str,
) -> None:
    """confluent-kafka-python#16 and #1817: the client's queue was full, or the process ended.

    Producing faster than the broker takes raised an error that cost the message, and what stood in
    the client's memory at the end of the program was gone without a word.
    """
    topic = create()
    # Room for ten records in the client, for thousands in the relay.
    small: dict[str, Any] = {"kafka_queue_buffering_max_messages": 10}
    ids = outbox.add(3000, topic) + outbox.add(500, topic, prefix="o", ordering_key="k")
    broker.proxies[0].delay(5)
    try:
        if how == "SIGTERM amid the rows":
            relay = start(**small)
            wait_until(lambda: outbox.counts().get("SENT", 0) > 100, "rows flow", PATIENCE)
            relay.stop()
            outbox.assert_nothing_is_left_behind()
            assert set(outbox.counts()) <= {"SENT", "PENDING"}
            broker.proxies[0].pass_on()
            start()
            outbox.wait_for("SENT", ids)
        else:
            relay = start("--until-empty", wait=False, **small)
            assert relay.process.wait(PATIENCE) == 0
    finally:
        broker.proxies[0].pass_on()
    rows = outbox.wait_all_sent()

    records = read_topic(broker.direct_servers, topic, timeout=60)
    assert sorted(ids_of(records)) == sorted(ids)
    assert_places_hold(rows, records)
    assert all(row.retry_count == 0 for row in rows)


def test_small_records_never_fail_for_the_size_of_their_batch(
    outbox: Outbox, broker: ProxiedKafka, create: NewTopicFunction, start: StartRelayFunction
) -> None:
    """librdkafka#488: a thousand small records were refused as too large.

    Together they made a batch over the topic's limit, and the broker's answer was taken for the
    fault of each of them.
    """
    topic = create({"max.message.bytes": "2000"})
    ids = outbox.add(1000, topic) + outbox.add(200, topic, prefix="o", ordering_key="k")
    relay = start(kafka_compression_type="none", kafka_batch_size=1_000_000)

    rows = outbox.wait_for("SENT", ids)

    records = read_topic(broker.direct_servers, topic, timeout=60)
    assert_places_hold(rows, records)
    assert len(records) == len(ids)
    assert all(row.retry_count == 0 and row.last_error_code is None for row in rows)
    in_order = [i for i in ids_of(records) if i in set(ids[1000:])]
    assert in_order == sorted(in_order)
    relay.stop()


@pytest.mark.parametrize("budget", [100, 2000])
def test_a_missing_topic_holds_up_no_other(
    outbox: Outbox,
    broker: ProxiedKafka,
    create: NewTopicFunction,
    start: StartRelayFunction,
    budget: int,
) -> None:
    """librdkafka#4904: messages for a topic that does not exist stalled those of all others.

    The client waited for the topic's metadata until the messages timed out, and they took up the
    room that the others needed. Here there are more of them than the relay may have in flight.
    """
    topic = create()
    missing = f"missing-{budget}"
    waiting = outbox.add(2 * budget, missing, prefix="missing")
    waiting += outbox.add(50, missing, prefix="missing-in-order", ordering_key="k")
    relay = start(relay_max_inflight_rows=budget, relay_batch_rows=100)

    good = outbox.add(500, topic, prefix="good")
    good += outbox.add(100, topic, prefix="good-in-order", ordering_key="k")
    outbox.wait_for("SENT", good)
    later = outbox.add(100, topic, prefix="later")
    rows = outbox.wait_for("SENT", later)

    assert all(row.claim_count == 1 for row in rows)
    assert {row.status for row in outbox.rows(waiting)} <= {"PENDING", "PROCESSING"}
    assert all(row.retry_count == 0 for row in outbox.rows(waiting))
    assert relay.process.running
