"""Promise 2, and the ends of the other promises at a broker that is silent (SIGSTOP)."""

from __future__ import annotations

import signal
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient

from bridge.local.kafka import LocalKafka
from tests.fixtures.kafka import read_topic, silent
from tests.fixtures.postgres import on_one_server
from tests.fixtures.relays import (
    FAST_LEASE,
    PATIENCE,
    RANDOM_TEXT,
    assert_places_hold,
    ids_of,
)
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.relays import Outbox, RelayProcess, StartRelayFunction

# The subject is the broker; PostgreSQL's version makes no difference to it.
pytestmark = on_one_server


@pytest.fixture(scope="module")
def broker(uses_real_kafka: bool) -> Iterator[LocalKafka]:  # noqa: FBT001 - a fixture's name
    """A broker that the tests of this module freeze, one after the other."""
    if not uses_real_kafka:
        pytest.skip("needs a real Kafka that can be suspended")
    with LocalKafka() as local:
        yield local


@pytest.fixture
def start(broker: LocalKafka, start_relay: StartRelayFunction) -> Iterator[StartRelayFunction]:
    """Start relays that use this module's broker, which goes on again after the test."""
    place = {"OUTBOX_BRIDGE_KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers}

    def started(*args: str, wait: bool = True, **settings: Any) -> RelayProcess:
        return start_relay(*args, wait=wait, env=place, **settings)

    yield started
    broker.resume()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers}, logger=silent)
    wait_until(lambda: admin.list_topics(timeout=30), "the broker answers", PATIENCE)


@pytest.fixture
def topic() -> str:
    """A topic for this test alone; the broker creates it on first use."""
    return f"orders-{uuid.uuid4().hex[:8]}"


def send_one(outbox: Outbox, topic: str) -> int:
    """Wait until one row has made it, so that topic and producer are warm."""
    (outbox_id,) = outbox.add(1, topic, prefix="warm")
    outbox.wait_for("SENT", [outbox_id])
    return outbox_id


def test_no_row_is_sent_before_the_brokers_acknowledgement(
    outbox: Outbox, broker: LocalKafka, start: StartRelayFunction, topic: str
) -> None:
    relay = start()
    warm = send_one(outbox, topic)
    broker.suspend()
    ids = outbox.add(200, topic)

    waiting = outbox.wait_for("PROCESSING", ids)

    # A second batch, claimed after the first had every chance to be settled.
    later = outbox.add(50, topic, prefix="later")
    waiting += outbox.wait_for("PROCESSING", later)
    assert {row.status for row in outbox.rows([*ids, *later])} == {"PROCESSING"}
    assert all(row.sent_at is None and row.sent_offset == -1 for row in waiting)
    broker.resume()
    rows = outbox.wait_for("SENT", [warm, *ids, *later])
    records = read_topic(broker.bootstrap_servers, topic, timeout=60)
    assert_places_hold(rows, records)
    assert len(ids_of(records)) == len(set(ids_of(records)))
    assert all(row.claim_count == 1 and row.retry_count == 0 for row in rows)
    relay.stop()


def test_nothing_is_claimed_while_no_broker_has_answered_yet(
    outbox: Outbox, broker: LocalKafka, start: StartRelayFunction, topic: str
) -> None:
    broker.suspend()
    ids = outbox.add(10, topic)
    relay = start(wait=False)
    relay.wait_for_event("waiting for Kafka")
    assert {row.status for row in outbox.rows(ids)} == {"PENDING"}
    broker.resume()
    assert all(row.claim_count == 1 for row in outbox.wait_for("SENT", ids))


def test_stop_at_a_silent_broker_ends_after_the_drain_timeout_and_gives_back_uncharged(
    outbox: Outbox, broker: LocalKafka, start: StartRelayFunction, topic: str
) -> None:
    # Room for one large payload at a time: the other one never gets as far as the producer.
    relay = start(relay_drain_timeout=1, relay_max_inflight_bytes=1_000_000)
    send_one(outbox, topic)
    broker.suspend()
    large = outbox.value(RANDOM_TEXT, 400_000)
    ids = outbox.add(3000, topic) + outbox.add(2, topic, prefix="large", payload_json=large)
    outbox.wait_for("PROCESSING", ids)

    relay.process.process.terminate()

    assert relay.process.wait(PATIENCE) == 1
    assert_given_back(outbox, ids)
    assert outbox.row(ids[-1]).claim_count == 0
    assert relay.report["forced"] is True
    assert relay.report["released"] > 0
    broker.resume()
    start()
    outbox.wait_for("SENT", ids)


def test_a_stop_awaits_the_acknowledgements_of_a_slow_broker(
    outbox: Outbox, broker: LocalKafka, start: StartRelayFunction, topic: str
) -> None:
    # Room for one large payload at a time: the second and the rows behind it stay in the relay.
    room: dict[str, Any] = {"relay_max_inflight_bytes": 1_000_000}
    relay = start(relay_drain_timeout=3600, relay_heartbeat_interval=2, **room)
    send_one(outbox, topic)
    broker.suspend()
    large = outbox.value(RANDOM_TEXT, 400_000)
    ids = outbox.add(100, topic, next_run_at="infinity")
    ids += outbox.add(1, topic, prefix="one", payload_json=large, next_run_at="infinity")
    kept = outbox.add(1, topic, prefix="two", payload_json=large, next_run_at="infinity")
    kept += outbox.add(20, topic, prefix="behind", next_run_at="infinity")
    # Due in one moment, so that one claim takes them all.
    outbox.execute("update app_outbox set next_run_at = now() where status = 'PENDING'")
    outbox.wait_for("PROCESSING", ids + kept)
    relay.process.process.terminate()
    relay.wait_for_event("relay stopping")
    beat = outbox.value("select heartbeat_at from app_outbox_relay")
    wait_until(
        lambda: outbox.value("select stopping and heartbeat_at > %s from app_outbox_relay", beat),
        "it has said that it leaves, and waits on",
        PATIENCE,
    )
    broker.resume()

    assert relay.process.wait(PATIENCE) == 0

    records = read_topic(broker.bootstrap_servers, topic, timeout=60)
    assert_places_hold(outbox.rows(ids), records)
    assert len(records) == 102
    for row in outbox.rows(kept):
        assert (row.status, row.claim_count, row.retry_count) == ("PENDING", 0, 0)
    assert relay.report["released"] == 21
    outbox.assert_nothing_is_left_behind()


def test_second_signal_forces_the_end_long_before_the_drain_timeout(
    outbox: Outbox, broker: LocalKafka, start: StartRelayFunction, topic: str
) -> None:
    relay = start(relay_drain_timeout=3600)
    send_one(outbox, topic)
    broker.suspend()
    ids = outbox.add(300, topic)
    outbox.wait_for("PROCESSING", ids)
    relay.process.process.terminate()
    relay.wait_for_event("relay stopping")

    relay.process.process.terminate()

    assert relay.process.wait(PATIENCE) == 1
    assert_given_back(outbox, ids)


def assert_given_back(outbox: Outbox, ids: list[int]) -> None:
    """Every row is PENDING and uncharged, whether Kafka may have it or not."""
    for row in outbox.rows(ids):
        assert row.status == "PENDING"
        assert row.retry_count == 0
        assert row.locked_by is None
        assert row.wait_seconds <= 0
        # 0: never handed to the client, certainly not sent; 1: Kafka may have it.
        assert (row.claim_count, row.last_error_code) in {
            (0, None),
            (1, None),
            (1, "STUCK_PROCESSING"),
        }
    outbox.assert_nothing_is_left_behind()


def test_a_frozen_relay_hands_nothing_to_kafka_that_another_one_has_taken_over(
    outbox: Outbox, broker: LocalKafka, start: StartRelayFunction, topic: str
) -> None:
    # Room for one large payload at a time: the others, and all rows behind them, wait in the relay.
    frozen = start(**FAST_LEASE, relay_max_inflight_bytes=1_000_000)
    send_one(outbox, topic)
    broker.suspend()
    large = outbox.value(RANDOM_TEXT, 400_000)
    head = outbox.add(3, topic, prefix="large", payload_json=large, next_run_at="infinity")
    ids = outbox.add(40, topic, prefix="behind", next_run_at="infinity")
    # Due in one moment, so that one claim takes them all.
    outbox.execute("update app_outbox set next_run_at = now() where status = 'PENDING'")
    outbox.wait_for("PROCESSING", head + ids)
    frozen.process.send(signal.SIGSTOP)
    broker.resume()
    start(**FAST_LEASE)
    outbox.wait_for("SENT", head + ids)

    frozen.process.send(signal.SIGCONT)

    frozen.wait_for_event("others declared this relay dead")
    frozen.stop()
    records = read_topic(broker.bootstrap_servers, topic, timeout=60)
    copies = Counter(outbox_id for outbox_id in ids_of(records) if outbox_id in ids)
    assert copies == dict.fromkeys(ids, 1)
    assert_places_hold(outbox.rows(head + ids), records)
