"""kill -9 at random points: nothing is lost, duplicates only of what was in flight."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.fixtures.postgres import on_one_server
from tests.fixtures.relays import PATIENCE, assert_places_hold, ids_of
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from tests.fixtures.kafka import ConsumeFunction, NewTopicFunction
    from tests.fixtures.relays import Outbox, RelayProcess, StartRelayFunction

ROUNDS = 20
WRITERS = 2
SEED_VARIABLE = "OUTBOX_BRIDGE_TEST_SEED"
INSERT = (
    "insert into app_outbox (message_key, event_type, destination, payload_json, ordering_key) "
    "values (%s, 'order.created', %s, '{}', %s)"
)


# Twenty rounds take long, and a crash looks the same to every version of PostgreSQL.
@on_one_server
@pytest.mark.timeout(300)
def test_kills_at_random_points_lose_nothing_and_duplicate_only_what_was_in_flight(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
) -> None:
    seed = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(10**9))
    note = f"repeat with {SEED_VARIABLE}={seed}"
    draw = random.Random(seed)  # noqa: S311 - chaos that can be repeated, no secret
    topic = new_topic()
    stop = threading.Event()
    in_flight: Counter[int] = Counter()

    def write(writer: int) -> None:
        with psycopg.connect(outbox.url) as connection:
            number = 0
            while not stop.is_set():
                for _ in range(5):
                    ordering_key = f"{writer}-{number % 9}" if number % 3 == 0 else None
                    connection.execute(INSERT, [f"{writer}-{number}", topic, ordering_key])
                    number += 1
                connection.commit() if number % 7 else connection.rollback()
                stop.wait(0.02)

    def start() -> RelayProcess:
        settings: dict[str, Any] = {
            "relay_batch_rows": draw.choice([5, 50, 1000]),
            "relay_settle_interval": draw.choice([0.001, 0.02, 0.5]),
        }
        return start_relay(wait=False, **settings)

    def kill(relay: RelayProcess) -> None:
        # Halted first: what it had in flight is looked at before another relay can take it over.
        relay.process.send(signal.SIGSTOP)
        outbox.wait_at_rest(relay.name)
        in_flight.update(
            row[0]
            for row in outbox.query(
                """
                select o.outbox_id
                from app_outbox_relay as r
                join app_outbox_claim as c on c.relay_id = r.relay_id
                join app_outbox as o on o.outbox_id = any(c.outbox_ids) and o.claim_id = c.claim_id
                where r.relay_name = %s and o.status = 'PROCESSING'
                """,
                relay.name,
            )
        )
        relay.process.kill()
        wait_until(lambda: not outbox.sessions(relay.name), "its sessions are gone", PATIENCE)

    threads = [
        threading.Thread(target=write, args=(writer,), daemon=True) for writer in range(WRITERS)
    ]
    for thread in threads:
        thread.start()
    relays = [start(), start()]
    try:
        for _ in range(ROUNDS):
            victim = draw.randrange(2)
            name = relays[victim].name
            if draw.random() < 0.8:
                # In most rounds at work, in some while it still starts.
                wait_until(lambda name=name: name in outbox.relay_names(), "it works", PATIENCE)  # type: ignore[misc] # bound per turn
            stop.wait(draw.uniform(0, 0.4))
            kill(relays[victim])
            relays[victim] = start()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    rows = outbox.wait_all_sent()

    records = consume(topic)
    assert_places_hold(rows, records)
    copies = Counter(ids_of(records))
    assert copies.keys() == {row.outbox_id for row in rows}, note
    too_many = {
        outbox_id: (count, in_flight[outbox_id])
        for outbox_id, count in copies.items()
        if count - 1 > in_flight[outbox_id]
    }
    assert not too_many, note
    for relay in relays:
        relay.wait_until_started()
        relay.stop()
    outbox.assert_nothing_is_left_behind()
