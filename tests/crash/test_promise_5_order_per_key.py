"""Promise 5: per destination and ordering key, first occurrences stand in the order of outbox_id.

Here under faults of relays, of the broker, and of people; joining and leaving relays are in
`tests/relay/test_two_relays.py`.
"""

from __future__ import annotations

import signal
import threading
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.fixtures.kafka import read_topic
from tests.fixtures.postgres import on_one_server
from tests.fixtures.relays import FAST_LEASE, PATIENCE
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bridge.local.kafka import LocalKafka
    from tests.fixtures.kafka import ReceivedRecord
    from tests.fixtures.relays import Outbox, StartRelayFunction

# What is slow to repeat; the claims themselves are tested on each server in tests/claims.
pytestmark = [on_one_server, pytest.mark.timeout(240)]

KEYS = 16
INSERT = (
    "insert into app_outbox (message_key, event_type, destination, payload_json, ordering_key) "
    "values (%s, 'order.created', %s, '{}', %s) returning outbox_id"
)
SMALL: dict[str, Any] = {"relay_batch_rows": 40, "relay_settle_interval": 0.1}
"""Many small claims, settled late: much is in flight at any moment."""


@contextmanager
def rows_arriving(url: str, topic: str) -> Iterator[None]:
    """Commit ordered rows of KEYS keys until the end of the block."""
    stop = threading.Event()

    def write() -> None:
        # One writer, so that the order of ids is the order of commits.
        with psycopg.connect(url) as connection:
            number = 0
            while not stop.wait(0.01):
                for _ in range(8):
                    connection.execute(INSERT, [f"m-{number}", topic, f"key-{number * 7 % KEYS}"])
                    number += 1
                connection.commit()

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()


def wait_for_progress(outbox: Outbox, rows: int = 300) -> None:
    goal = outbox.counts().get("SENT", 0) + rows
    wait_until(lambda: outbox.counts().get("SENT", 0) >= goal, "rows flow", PATIENCE)


def first_occurrences(records: Iterable[ReceivedRecord]) -> dict[bytes | None, list[int]]:
    """Return, for each record key, its rows in the order in which they first appear."""
    order: dict[bytes | None, dict[int, None]] = defaultdict(dict)
    for record in records:
        order[record.key].setdefault(int(record.headers["outbox-id"]))
    return {key: list(ids) for key, ids in order.items()}


def assert_in_order(outbox: Outbox, broker: LocalKafka, topic: str) -> None:
    """Every row is in the topic, and the first occurrences of each key stand in id order."""
    expected: dict[bytes | None, list[int]] = defaultdict(list)
    for row in outbox.rows():
        expected[(row.ordering_key or "").encode()].append(row.outbox_id)
    records = read_topic(broker.bootstrap_servers, topic, timeout=60)
    assert first_occurrences(records) == expected


def test_a_frozen_relay_hands_its_keys_over_and_comes_back(
    outbox: Outbox, broker: LocalKafka, start: StartRelayFunction, topic: str
) -> None:
    with rows_arriving(outbox.url, topic):
        relays = [start(**FAST_LEASE, **SMALL) for _ in range(2)]
        for frozen in relays:
            wait_for_progress(outbox)
            frozen.process.send(signal.SIGSTOP)
            wait_until(
                lambda name=frozen.name: name not in outbox.relay_names(),  # type: ignore[misc] # bound per turn
                "the other one has declared it dead",
                PATIENCE,
            )
            wait_for_progress(outbox)
            frozen.process.send(signal.SIGCONT)
            wait_until(
                lambda name=frozen.name: name in outbox.relay_names(),  # type: ignore[misc] # bound per turn
                "it has registered anew",
                PATIENCE,
            )
        wait_for_progress(outbox)
    outbox.wait_all_sent(2 * PATIENCE)
    assert_in_order(outbox, broker, topic)


@pytest.mark.parametrize("how", ["frozen", "killed"])
def test_a_broker_that_fails_in_the_middle_of_many_keys(
    outbox: Outbox, broker: LocalKafka, start: StartRelayFunction, topic: str, how: str
) -> None:
    """For longer than message.timeout.ms, so that records are given up that stand in the topic."""
    with rows_arriving(outbox.url, topic):
        relays = [start(**FAST_LEASE, **SMALL) for _ in range(2)]
        wait_for_progress(outbox)
        broker.suspend() if how == "frozen" else broker.kill()
        try:
            # The fault lasts: longer than message.timeout.ms, then longer than the lease.
            threading.Event().wait(6)
        finally:
            broker.resume() if how == "frozen" else broker.restart()
        wait_for_progress(outbox)
    outbox.wait_all_sent(2 * PATIENCE)

    assert_in_order(outbox, broker, topic)
    assert all(row.retry_count == 0 for row in outbox.rows())
    assert all(relay.process.running for relay in relays)


def test_an_operators_lock_on_the_head_of_a_key_holds_that_key_and_no_other(
    outbox: Outbox, broker: LocalKafka, start: StartRelayFunction, topic: str
) -> None:
    held = outbox.add(30, topic, prefix="held", ordering_key="held")
    others = [
        outbox_id
        for number in range(KEYS)
        for outbox_id in outbox.add(10, topic, prefix=f"k{number}", ordering_key=f"k{number}")
    ]
    with psycopg.connect(outbox.url) as operator:
        operator.execute("select from app_outbox where outbox_id = %s for update", [held[0]])
        start(**SMALL)
        outbox.wait_for("SENT", others)
        assert {row.status for row in outbox.rows(held)} == {"PENDING"}
    outbox.wait_for("SENT", held)
    assert_in_order(outbox, broker, topic)


def test_an_operators_lock_on_a_row_in_flight_delays_only_its_own_outcome(
    outbox: Outbox, broker: LocalKafka, start: StartRelayFunction, topic: str
) -> None:
    (head,) = outbox.add(1, topic, prefix="head", ordering_key="k")
    start(relay_settle_interval=5)
    outbox.wait_for("PROCESSING", [head])
    with psycopg.connect(outbox.url) as operator:
        operator.execute("select from app_outbox where outbox_id = %s for update", [head])
        rest = outbox.add(20, topic, prefix="rest", ordering_key="k")
        outbox.wait_for("SENT", rest)
        assert outbox.row(head).status == "PROCESSING"
    outbox.wait_for("SENT", [head])
    assert_in_order(outbox, broker, topic)


def test_two_writers_that_lock_their_business_row_first_are_sent_in_commit_order(
    outbox: Outbox, broker: LocalKafka, start: StartRelayFunction, topic: str
) -> None:
    """The one that began first gets the lock last: its rows come last, by id and in the topic."""
    outbox.execute("create table business (id text primary key)")
    outbox.execute("insert into business values ('account')")
    start(**SMALL)
    lock = "select from business where id = 'account' for update"
    order: list[int] = []

    def enqueue(connection: psycopg.Connection, prefix: str) -> None:
        for number in range(5):
            row = connection.execute(INSERT, [f"{prefix}-{number}", topic, "account"]).fetchone()
            assert row is not None
            order.append(row[0])

    with psycopg.connect(outbox.url) as early, psycopg.connect(outbox.url) as late:
        early.execute("select 1")  # begins first …
        late.execute(lock)  # … and locks second

        def write_early() -> None:
            early.execute(lock)
            enqueue(early, "early")
            early.commit()

        thread = threading.Thread(target=write_early)
        thread.start()
        wait_until(
            lambda: outbox.value("select count(*) from pg_locks where not granted"),
            "the early one waits for the lock",
            PATIENCE,
        )
        enqueue(late, "late")
        late.commit()
        thread.join()

    rows = outbox.wait_for("SENT", order)
    assert order == sorted(order)
    assert [row.message_key.partition("-")[0] for row in rows] == ["late"] * 5 + ["early"] * 5
    assert_in_order(outbox, broker, topic)
