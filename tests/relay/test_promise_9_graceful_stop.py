"""Promise 9: a stop claims nothing more, settles what is in flight and gives the rest back.

What is slow to repeat runs on the first server only.
"""

from __future__ import annotations

import signal
from collections import Counter
from typing import TYPE_CHECKING

import psycopg
import pytest

from bridge.database.migrations import Migrator
from tests.fixtures.postgres import on_one_server
from tests.fixtures.relays import PATIENCE, assert_places_hold, ids_of
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from bridge.local.postgres import LocalPostgres
    from tests.fixtures.kafka import ConsumeFunction, KafkaBroker, NewTopicFunction
    from tests.fixtures.relays import Outbox, StartRelayFunction


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stop_under_load_drains_and_leaves_nothing_in_flight(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
    number: signal.Signals,
) -> None:
    topic = new_topic()
    outbox.add(8000, topic)
    outbox.add(2000, topic, prefix="o", ordering_key="k")
    relay = start_relay(relay_batch_rows=100)
    wait_until(lambda: outbox.counts().get("SENT", 0) > 300, "some rows are SENT", PATIENCE)

    relay.process.send(number)

    assert relay.process.wait(PATIENCE) == 0, relay.process.stderr
    report = relay.report
    counts = Counter(outbox.counts())
    assert counts["SENT"] == report["sent"]
    assert counts["SENT"] + counts["PENDING"] == 10_000
    assert report["forced"] is False
    outbox.assert_nothing_is_left_behind()
    sent = [row for row in outbox.rows() if row.status == "SENT"]
    kept = [row for row in outbox.rows() if row.status == "PENDING"]
    records = consume(topic)
    assert len(records) == len(sent)
    assert_places_hold(sent, records)
    # What was given back was never handed to Kafka, and says so.
    assert all(row.claim_count == 0 and row.retry_count == 0 for row in kept)
    assert all(row.claim_id is None and row.locked_by is None for row in kept)
    assert all(row.last_error_code is None for row in kept)


@on_one_server
def test_stop_of_an_idle_relay_does_not_wait_for_its_sleep(
    outbox: Outbox, start_relay: StartRelayFunction, new_topic: NewTopicFunction
) -> None:
    relay = start_relay(relay_sleep=3600, relay_drain_timeout=3600)
    topic = new_topic()
    outbox.wait_for("SENT", outbox.add(1, topic))
    assert relay.stop()["sent"] == 1
    outbox.assert_nothing_is_left_behind()


@on_one_server
def test_an_operators_lock_does_not_keep_the_others_from_being_settled_at_stop(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
) -> None:
    topic = new_topic()
    ids = outbox.add(50, topic)
    relay = start_relay(relay_settle_interval=5, relay_drain_timeout=10)
    outbox.wait_for("PROCESSING", ids)
    with psycopg.connect(outbox.url) as operator:
        operator.execute("select from app_outbox where outbox_id = %s for update", [ids[7]])
        relay.process.process.terminate()
        assert relay.process.wait(PATIENCE) == 1
        others = [outbox_id for outbox_id in ids if outbox_id != ids[7]]
        outbox.wait_for("SENT", others, timeout=1)
        assert outbox.row(ids[7]).status == "PROCESSING"
    # Nobody forgets it: the next relay finds its claim.
    start_relay("--until-empty", wait=False)
    outbox.wait_for("SENT", [ids[7]])
    assert sorted(ids_of(consume(topic))) == sorted([*ids, ids[7]])


def migrated(server: LocalPostgres) -> dict[str, str]:
    """Migrate a server of its own, and return the environment that leads a relay there."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        Migrator(connection).up()
    return {"OUTBOX_BRIDGE_DATABASE_URL": server.url}


@on_one_server
@pytest.mark.parametrize("signals", [1, 2], ids=["drain time-out", "second signal"])
def test_a_database_that_hangs_does_not_keep_a_relay_from_its_end(
    own_postgres: LocalPostgres, start_relay: StartRelayFunction, kafka: KafkaBroker, signals: int
) -> None:
    """Another relay, once the database is back, finds its claims."""
    relay = start_relay(env=migrated(own_postgres), relay_drain_timeout=1 if signals == 1 else 3600)
    own_postgres.suspend()
    relay.process.process.terminate()
    if signals == 2:
        relay.wait_for_event("relay stopping")
        relay.process.process.terminate()

    assert relay.process.wait(PATIENCE) == 1

    own_postgres.resume()
    with psycopg.connect(own_postgres.url, autocommit=True) as connection:
        assert connection.execute("select count(*) from app_outbox_claim").fetchone() == (0,)
