"""Several relays side by side: no row twice, ordered rows in order."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import psycopg

from tests.fixtures.postgres import on_one_server
from tests.fixtures.relays import PATIENCE, assert_places_hold, ids_of
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.fixtures.kafka import ConsumeFunction, NewTopicFunction, ReceivedRecord
    from tests.fixtures.relays import Outbox, StartRelayFunction

KEYS = 24
INSERT = (
    "insert into app_outbox (message_key, event_type, destination, payload_json, ordering_key) "
    "values (%s, 'order.created', %s, '{}', %s)"
)


def in_threads(works: Iterable[Callable[[], None]]) -> list[threading.Thread]:
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    return threads


def test_two_live_relays_never_send_a_row_twice(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
) -> None:
    topics = [new_topic("a"), new_topic("b")]
    relays = [start_relay(relay_batch_rows=100) for _ in range(2)]

    def write(writer: int) -> None:
        with psycopg.connect(outbox.url) as connection:
            for transaction in range(100):
                for number in range(15):
                    key = f"{writer}-{transaction}-{number}"
                    ordering_key = f"k{number}-{writer}" if number % 5 == 0 else None
                    connection.execute(INSERT, [key, topics[number % 2], ordering_key])
                connection.commit()

    for thread in in_threads(lambda writer=writer: write(writer) for writer in range(3)):  # type: ignore[misc] # bound per turn
        thread.join()
    rows = outbox.wait_all_sent()

    records = [*consume(topics[0]), *consume(topics[1])]
    assert len(rows) == 4500
    assert sorted(ids_of(records)) == [row.outbox_id for row in rows]
    assert_places_hold(rows, records)
    assert all(row.claim_count == 1 for row in rows)
    reports = [relay.stop() for relay in relays]
    assert sum(report["sent"] for report in reports) == 4500
    assert all(report["sent"] > 0 for report in reports)
    assert all(report["lost_leases"] == 0 for report in reports)
    outbox.assert_nothing_is_left_behind()


def first_occurrences(records: Iterable[ReceivedRecord]) -> dict[bytes | None, list[int]]:
    """Return, for each record key, its rows in the order in which they first appear."""
    order: dict[bytes | None, dict[int, None]] = defaultdict(dict)
    for record in records:
        order[record.key].setdefault(int(record.headers["outbox-id"]))
    return {key: list(ids) for key, ids in order.items()}


@on_one_server
def test_ordered_rows_keep_their_order_while_relays_join_leave_and_die(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
) -> None:
    topic = new_topic()
    stop = threading.Event()

    def write() -> None:
        # One writer, so that the order of ids is the order of commits.
        with psycopg.connect(outbox.url) as connection:
            number = 0
            while not stop.is_set():
                for _ in range(10):
                    connection.execute(INSERT, [f"m{number}", topic, f"key-{number * 7 % KEYS}"])
                    number += 1
                connection.commit()
                stop.wait(0.01)

    def wait_for_progress() -> None:
        goal = outbox.counts().get("SENT", 0) + 500
        wait_until(lambda: outbox.counts().get("SENT", 0) >= goal, "rows flow", PATIENCE)

    settings: dict[str, Any] = {"relay_batch_rows": 20, "relay_settle_interval": 0.1}
    for number in range(8):
        # A backlog of hot keys, so that two relays would meet at each if nothing kept them apart.
        outbox.add(500, topic, prefix=f"backlog-{number}", ordering_key=f"key-{number}")
    (writer,) = in_threads([write])
    try:
        first = start_relay(wait=False, **settings)
        second = start_relay(**settings)
        first.wait_until_started()
        wait_for_progress()
        first.process.kill()
        third = start_relay(**settings)
        wait_until(
            lambda: outbox.relay_names() == {second.name, third.name}, "the dead is gone", PATIENCE
        )
        wait_for_progress()
        second.stop()
        wait_for_progress()
        fourth = start_relay(**settings)
        wait_until(
            lambda: (
                outbox.value(
                    "select count(*) from app_outbox_lane join app_outbox_relay using (relay_id) "
                    "where relay_name = %s",
                    fourth.name,
                )
                == 32
            ),
            "the newcomer has half of the lanes",
            PATIENCE,
        )
        wait_for_progress()
    finally:
        stop.set()
        writer.join()
    rows = outbox.wait_all_sent(2 * PATIENCE)

    expected: dict[bytes | None, list[int]] = defaultdict(list)
    for row in rows:
        expected[(row.ordering_key or "").encode()].append(row.outbox_id)
    assert first_occurrences(consume(topic)) == expected
    # The lanes were shared: whoever came later had its part of the work.
    assert third.stop()["sent"] > 0
    assert fourth.stop()["sent"] > 0
    outbox.assert_nothing_is_left_behind()
