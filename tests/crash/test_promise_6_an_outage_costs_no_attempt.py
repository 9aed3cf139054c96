"""Promise 6: while Kafka is silent or gone no message is charged, none is lost, none doubled.

OUTBOX_BRIDGE_TEST_OUTAGE_SECONDS=40 makes the outage as long as the promise says, with the default
time-outs; without it everything is shorter in proportion.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.crash.chaos.watch import Watch
from tests.fixtures.kafka import read_topic
from tests.fixtures.postgres import on_one_server
from tests.fixtures.relays import (
    FAST_LEASE,
    PATIENCE,
    Outbox,
    assert_places_hold,
    ids_of,
)
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bridge.local.kafka import LocalKafka
    from tests.fixtures.relays import RelayProcess, Row, StartRelayFunction

# The subject is Kafka; PostgreSQL's version makes no difference to it.
pytestmark = [on_one_server, pytest.mark.timeout(300)]

LONG = 40.0
ASKED = os.environ.get("OUTBOX_BRIDGE_TEST_OUTAGE_SECONDS")
OUTAGE = float(ASKED or 12)
"""Seconds for which Kafka is frozen."""
SCALE = OUTAGE / LONG
RECOVERY = 30.0 if ASKED else PATIENCE
"""Seconds after Kafka's return within which everything must be SENT; more beside other tests."""
RATE = 100
"""Rows a second that arrive meanwhile."""

IN_PROPORTION: dict[str, Any] = {
    "relay_heartbeat_interval": 5 * SCALE,
    "relay_lease": 120 * SCALE,
    "relay_lease_margin": 10 * SCALE,
    "kafka_message_timeout_ms": int(90_000 * SCALE),
}
"""The defaults, as much shorter as the outage is."""
INSERT = (
    "insert into app_outbox (message_key, event_type, destination, payload_json, ordering_key) "
    "values (%s, 'order.created', %s, '{}', %s)"
)


@contextmanager
def rows_arriving(url: str, topic: str) -> Iterator[None]:
    """Commit RATE rows a second, every third of them ordered, until the end of the block."""
    stop = threading.Event()

    def write() -> None:
        with psycopg.connect(url) as connection:
            started, number = time.monotonic(), 0
            while not stop.wait(0.02):
                while number < (time.monotonic() - started) * RATE:
                    ordering_key = f"key-{number % 7}" if number % 3 == 0 else None
                    connection.execute(INSERT, [f"m-{number}", topic, ordering_key])
                    number += 1
                connection.commit()

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()


def assert_uncharged(rows: Sequence[Row]) -> None:
    charged = [row for row in rows if row.retry_count or row.status == "FAILED"]
    assert charged == []


def wait_for_some(outbox: Outbox, relay: RelayProcess) -> None:
    goal = outbox.counts().get("SENT", 0) + RATE
    try:
        wait_until(lambda: outbox.counts().get("SENT", 0) >= goal, "rows flow", PATIENCE)
    except pytest.fail.Exception:
        print(outbox.counts(), relay.process.stderr)
        raise


def test_kafka_frozen_while_rows_arrive_charges_nothing_and_doubles_nothing(
    outbox: Outbox, broker: LocalKafka, start: StartRelayFunction, topic: str
) -> None:
    relay = start(**IN_PROPORTION)
    with rows_arriving(outbox.url, topic):
        wait_for_some(outbox, relay)
        before = outbox.counts()["SENT"]
        broker.suspend()
        try:
            # The outage is what is tested, so here time itself is the condition.
            threading.Event().wait(OUTAGE)
            assert_uncharged(outbox.rows())
            assert relay.process.running
        finally:
            broker.resume()
    rows = outbox.wait_all_sent(timeout=RECOVERY)

    assert len(rows) - before > OUTAGE * RATE / 2
    assert_uncharged(rows)
    records = read_topic(broker.bootstrap_servers, topic, timeout=60)
    assert sorted(ids_of(records)) == [row.outbox_id for row in rows]
    assert_places_hold(rows, records)
    assert relay.process.running
    assert relay.stop()["retried"] == 0


def test_kafka_gone_for_longer_than_any_timeout_doubles_only_what_was_in_flight(
    outbox: Outbox, broker: LocalKafka, start: StartRelayFunction, topic: str
) -> None:
    """As down for ten minutes, with every time-out of the relay shorter than the outage."""
    relay = start(**FAST_LEASE)
    watch = Watch(outbox.url)
    with rows_arriving(outbox.url, topic):
        wait_for_some(outbox, relay)
        with watch.follow():
            broker.kill()
            # Longer than message.timeout.ms and the lease together.
            threading.Event().wait(8)
            assert relay.process.running
            broker.restart()
        wait_for_some(outbox, relay)
    rows = outbox.wait_all_sent(timeout=RECOVERY)

    assert_uncharged(rows)
    records = read_topic(broker.bootstrap_servers, topic, timeout=60)
    copies = Counter(ids_of(records))
    assert copies.keys() == {row.outbox_id for row in rows}
    assert {outbox_id for outbox_id, count in copies.items() if count > 1} <= watch.outbox_ids
    relay.stop()
    outbox.assert_nothing_is_left_behind()


def test_the_claims_pause_while_kafka_is_gone(
    outbox: Outbox, broker: LocalKafka, start: StartRelayFunction, topic: str
) -> None:
    """What arrives once the outage is known is not claimed, so nothing of it can be doubled."""
    warm = outbox.add(10, topic, prefix="warm")
    # Time enough for a broker that has just come up to take what waits at the first try.
    relay = start(**FAST_LEASE | {"relay_lease": 10, "kafka_message_timeout_ms": 6000})
    outbox.wait_for("SENT", warm)
    broker.kill()
    try:
        tried = outbox.add(10, topic, prefix="tried")
        # Until it knows, it may try; then everything is back and waits.
        relay.wait_for_event("Kafka does not answer")
        wait_until(
            lambda: (
                {row.status for row in outbox.rows(tried)} == {"PENDING"}
                and outbox.query("select * from app_outbox_claim") == []
            ),
            "the relay has given everything back",
            PATIENCE,
        )
        later = outbox.add(200, topic, prefix="later")
        threading.Event().wait(3)
        assert {row.claim_count for row in outbox.rows(later)} == {0}
        assert_uncharged(outbox.rows())
    finally:
        broker.restart()
    rows = outbox.wait_for("SENT", tried + later, timeout=RECOVERY)
    assert {row.claim_count for row in rows if row.outbox_id in later} == {1}
    relay.stop()


def test_a_relay_that_starts_while_kafka_is_down_waits_says_so_once_and_works_when_it_comes(
    outbox: Outbox, broker: LocalKafka, start: StartRelayFunction, topic: str
) -> None:
    ids = outbox.add(20, topic)
    broker.kill()
    try:
        relay = start(wait=False)
        relay.wait_for_event("waiting for Kafka")
        # Longer than two of its looks.
        threading.Event().wait(3)
        assert relay.process.running
        assert {row.claim_count for row in outbox.rows(ids)} == {0}
    finally:
        broker.restart()

    rows = outbox.wait_for("SENT", ids)

    assert_uncharged(rows)
    assert all(row.claim_count == 1 for row in rows)
    assert len(relay.events("waiting for Kafka")) == 1
    # librdkafka tells of the refused connections; ours is one line, theirs must not be a flood.
    told = Counter(line["event"][:60] for line in relay.log)
    assert sum(told.values()) < 50, told
    relay.stop()
