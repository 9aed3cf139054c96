"""Promise 1: every committed row goes out or stays visible; a rolled back one never goes out."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import psycopg

from tests.fixtures.relays import PATIENCE, assert_places_hold, ids_of
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from tests.fixtures.kafka import ConsumeFunction, NewTopicFunction
    from tests.fixtures.relays import Outbox, StartRelayFunction

INSERT = (
    "insert into app_outbox (message_key, event_type, destination, payload_json) "
    "values (%s, 'order.created', %s, '{}') returning outbox_id"
)


def test_committed_rows_are_sent_once_and_rolled_back_rows_never(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
) -> None:
    topic = new_topic()
    relay = start_relay()
    committed: set[str] = set()
    with psycopg.connect(outbox.url) as writer:
        for number in range(200):
            writer.execute(INSERT, [f"kept-{number}", topic])
            writer.execute("savepoint before")
            writer.execute(INSERT, [f"undone-{number}", topic])
            writer.execute("rollback to before")
            if number % 3:
                writer.commit()
                committed.add(f"kept-{number}")
            else:
                writer.rollback()

    rows = outbox.wait_all_sent()

    assert {row.message_key for row in rows} == committed
    relay.stop()
    records = consume(topic)
    assert sorted(ids_of(records)) == [row.outbox_id for row in rows]
    assert_places_hold(rows, records)


def test_at_every_moment_each_committed_row_is_in_one_of_the_states(
    outbox: Outbox, start_relay: StartRelayFunction, new_topic: NewTopicFunction
) -> None:
    topic = new_topic()
    outbox.add(3000, topic)
    queued_or_claimed = """
        select count(*) from app_outbox as o where o.status in ('PENDING', 'PROCESSING')
        and not exists (select from app_outbox_queue as q where q.outbox_id = o.outbox_id)
        and not exists (select from app_outbox_claim as c where o.outbox_id = any(c.outbox_ids))
    """
    start_relay(relay_batch_rows=200)
    seen: Counter[str] = Counter()

    def look() -> bool:
        counts = outbox.counts()
        seen.update(counts.keys())
        assert sum(counts.values()) == 3000
        assert outbox.value(queued_or_claimed) == 0
        return counts.get("SENT") == 3000

    wait_until(look, "all rows are SENT", PATIENCE)
    assert set(seen) <= {"PENDING", "PROCESSING", "SENT"}
