"""Real bugs of comparable systems, made again: the order of one key.

Each docstring names the report and tells the situation in our own words.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from bridge.local.kafka import LocalKafka
from tests.fixtures.kafka import read_topic
from tests.fixtures.postgres import on_one_server
from tests.fixtures.relays import FAST_LEASE, PATIENCE, ids_of
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.fixtures.kafka import (
        ConsumeFunction,
        KafkaBroker,
        NewTopicFunction,
        ReceivedRecord,
    )
    from tests.fixtures.relays import Outbox, StartRelayFunction

# The order is Kafka's and the relay's; the claims are tested on each server in tests/claims.
pytestmark = [on_one_server, pytest.mark.timeout(240)]


def first_occurrences(records: Iterable[ReceivedRecord]) -> list[int]:
    """Return the rows of all records in the order in which they first appear."""
    return list(dict.fromkeys(ids_of(records)))


@pytest.mark.parametrize("guilty", [0, 1, 14, 29], ids=["head", "second", "middle", "last"])
@pytest.mark.parametrize("where", ["topic", "client"])
def test_a_record_too_large_does_not_put_its_neighbours_out_of_order(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
    kafka: KafkaBroker,
    *,
    guilty: int,
    where: str,
) -> None:
    """Dekaf#3054: of 1, 2, 3, where 1 was too large with its neighbours, came 2, 3, 1.

    A refused record takes its batch with it; what was sent again went behind what had got through
    in the meantime. What comes after a row that FAILED waits for an operator, or goes on (a policy
    of its own); either way those that are sent are sent in order.
    """
    if not kafka.is_real:
        pytest.skip("the mock cluster knows no max.message.bytes")
    limit = {"max.message.bytes": "20000"} if where == "topic" else {}
    size = 30_000 if where == "topic" else 1_200_000
    topic = new_topic("small", partitions=1, config=limit)
    other = new_topic()
    ids = [
        outbox.add(
            1,
            topic,
            prefix=f"m{number}",
            ordering_key="k",
            next_run_at="infinity",
            payload_json='"' + "x" * (size if number == guilty else 100) + '"',
        )[0]
        for number in range(30)
    ]
    # Due in one moment, so that one claim takes them all.
    outbox.execute("update app_outbox set next_run_at = now()")
    start_relay(kafka_compression_type="none", relay_inline_payload_bytes=2_000_000)
    (failed,) = outbox.wait_for("FAILED", [ids[guilty]])
    assert failed.last_error_code == "MESSAGE_TOO_LARGE"
    # Another key, and more of the same one behind it.
    ids += outbox.add(10, topic, prefix="behind", ordering_key="k")
    beside = outbox.add(10, other, prefix="beside", ordering_key="k")
    outbox.wait_for("SENT", beside)

    outbox.execute("update app_outbox set status = 'CANCELLED' where status = 'FAILED'")

    rest = [outbox_id for outbox_id in ids if outbox_id != failed.outbox_id]
    rows = outbox.wait_for("SENT", rest)
    assert first_occurrences(consume(topic)) == rest
    assert all(row.retry_count == 0 for row in rows)


@pytest.fixture(scope="module")
def broker(uses_real_kafka: bool) -> Iterator[LocalKafka]:  # noqa: FBT001 - a fixture's name
    """A broker that a test of this module kills and starts again."""
    if not uses_real_kafka:
        pytest.skip("needs a real Kafka that can be killed")
    with LocalKafka(heap="256m") as local:
        yield local


def test_after_an_outage_no_older_row_comes_behind_a_newer_one_of_its_key(
    outbox: Outbox, start_relay: StartRelayFunction, broker: LocalKafka
) -> None:
    """CAP#1078: what had failed in an outage was sent again minutes later, behind newer messages.

    New messages went out the moment the broker was back, the older ones when their retry was due.
    """
    topic = "after-an-outage"
    place = {"OUTBOX_BRIDGE_KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers}
    warm = outbox.add(10, topic, prefix="warm", ordering_key="k")
    start_relay(env=place, **FAST_LEASE)
    outbox.wait_for("SENT", warm)
    broker.kill()
    before = outbox.add(50, topic, prefix="before", ordering_key="k")
    wait_until(
        lambda: any(row.claim_count for row in outbox.rows(before)), "some are tried", PATIENCE
    )
    # Longer than message.timeout.ms: what was tried has been given up by the client.
    threading.Event().wait(4)
    during = outbox.add(50, topic, prefix="during", ordering_key="k")
    broker.restart()
    after = outbox.add(50, topic, prefix="after", ordering_key="k")

    # Within a minute: nobody waits for a backoff that an outage does not earn.
    rows = outbox.wait_for("SENT", before + during + after)

    records = read_topic(broker.bootstrap_servers, topic, timeout=60)
    assert first_occurrences(records) == warm + before + during + after
    assert all(row.retry_count == 0 for row in rows)


HEADS: dict[str, dict[str, Any]] = {
    "unordered": {},
    "the same key": {"ordering_key": "k"},
    "another key": {"ordering_key": "other"},
}


@pytest.mark.parametrize("head", HEADS)
def test_a_row_for_later_at_the_head_hides_nothing_behind_it(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
    head: str,
) -> None:
    """gruelbox#788: a future-dated message at the head of its topic hid all the others.

    The query for the next message of a topic took the oldest one and then looked at its date. A row
    scheduled for later does not exist for the order until it is due.
    """
    topic = new_topic()
    later = outbox.add(
        300, topic, prefix="later", next_run_at="2999-01-01 00:00:00+00", **HEADS[head]
    )
    start_relay(relay_batch_rows=50)
    due = outbox.add(20, topic, prefix="due", ordering_key="k")
    due += outbox.add(20, topic, prefix="free")
    outbox.wait_for("SENT", due)
    assert {row.status for row in outbox.rows(later)} == {"PENDING"}

    outbox.execute("update app_outbox set next_run_at = now() where status = 'PENDING'")

    outbox.wait_for("SENT", later)
    keyed = [i for i in ids_of(consume(topic)) if i in set(later)]
    if HEADS[head]:
        assert keyed == later
