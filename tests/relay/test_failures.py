"""A message that can never be sent is FAILED at once with its code, and costs only itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fixtures.postgres import on_one_server
from tests.fixtures.relays import assert_places_hold

if TYPE_CHECKING:
    from tests.fixtures.kafka import ConsumeFunction, KafkaBroker, NewTopicFunction
    from tests.fixtures.relays import Outbox, Row, RunRelayFunction, StartRelayFunction

# What Kafka refuses does not depend on PostgreSQL's version.
pytestmark = on_one_server


def assert_failed(row: Row, code: str, text: str) -> None:
    assert (row.status, row.last_error_code) == ("FAILED", code)
    assert row.last_error_msg is not None
    assert text in row.last_error_msg


def test_a_record_over_the_topics_limit_fails_alone_and_its_neighbours_are_sent(
    outbox: Outbox,
    run_relay: RunRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
    kafka: KafkaBroker,
) -> None:
    if not kafka.is_real:
        pytest.skip("the mock cluster knows no max.message.bytes")
    topic = new_topic("small", partitions=1, config={"max.message.bytes": "2000"})
    # One partition and one claim: they go out as one produce batch.
    before = outbox.add(5, topic, prefix="before")
    guilty = outbox.add(2, topic, prefix="guilty", payload_json='"' + "x" * 5000 + '"')
    after = outbox.add(5, topic, prefix="after")

    report = run_relay(kafka_compression_type="none")

    for row in outbox.rows(guilty):
        assert_failed(row, "MESSAGE_TOO_LARGE", "too large")
    innocent = outbox.rows(before + after)
    assert_places_hold(innocent, consume(topic))
    assert all(row.retry_count == 0 and row.last_error_code is None for row in innocent)
    assert (report["sent"], report["failed"], report["retried"]) == (10, 2, 0)
    outbox.assert_nothing_is_left_behind()


def test_a_record_over_the_producers_limit_fails_and_its_neighbours_are_sent(
    outbox: Outbox,
    run_relay: RunRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
) -> None:
    topic = new_topic()
    # Incompressible, since librdkafka looks at the size before compression as well.
    (guilty,) = outbox.add(1, topic, prefix="g", payload_json='"' + "x" * 1_200_000 + '"')
    ids = outbox.add(5, topic)

    run_relay()

    assert_failed(outbox.row(guilty), "MESSAGE_TOO_LARGE", "")
    assert_places_hold(outbox.rows(ids), consume(topic))


def test_destinations_that_no_topic_can_have_fail_at_once(
    outbox: Outbox, run_relay: RunRelayFunction, new_topic: NewTopicFunction
) -> None:
    topic = new_topic()
    names = ["orders/eu", "orders eu", "büro", ".", "..", "x" * 199 + "!", "a\nb", "a*"]
    bad = [outbox.add(1, name, prefix=f"bad-{name}"[:190])[0] for name in names]
    good = outbox.add(3, topic)

    report = run_relay()

    for row in outbox.rows(bad):
        assert_failed(row, "INVALID_TOPIC", "topic name")
    assert {row.status for row in outbox.rows(good)} == {"SENT"}
    assert report["failed"] == len(names)


BAD_HEADERS = {
    "number": ('{"n": 1}', "'n' is int"),
    "null": ('{"n": null}', "'n' is NoneType"),
    "true": ('{"n": true}', "'n' is bool"),
    "object": ('{"n": {"x": "y"}}', "'n' is dict"),
    "reserved": ('{"outbox-id": "7"}', "'outbox-id' is written by the relay"),
    "case": ('{"Idempotency-Key": "7"}', "'Idempotency-Key' is written by the relay"),
    "long name": ('{"' + "long" * 700 + '": 1}', "longlong"),
    "deep": ('{"a": ' + "[" * 1500 + "]" * 1500 + "}", "cannot be read"),
    "infinite": ('{"n": 1e400}', "cannot be read"),
}


def test_headers_that_plain_sql_let_through_fail_their_row_alone(
    outbox: Outbox, run_relay: RunRelayFunction, new_topic: NewTopicFunction
) -> None:
    topic = new_topic()
    bad = {
        outbox.add(1, topic, prefix=name, headers=headers)[0]: text
        for name, (headers, text) in BAD_HEADERS.items()
    }
    good = outbox.add(3, topic, headers='{"n": "1"}')

    report = run_relay()

    for outbox_id, text in bad.items():
        assert_failed(outbox.row(outbox_id), "CANNOT_ENCODE", text)
    assert {row.status for row in outbox.rows(good)} == {"SENT"}
    assert report["failed"] == len(bad)


def test_an_endless_relay_outlives_messages_that_can_never_be_sent(
    outbox: Outbox, start_relay: StartRelayFunction, new_topic: NewTopicFunction
) -> None:
    topic = new_topic()
    relay = start_relay()
    bad = outbox.add(1, topic, prefix="a", headers='{"n": 1}')
    bad += outbox.add(1, "no topic", prefix="b")
    bad += outbox.add(1, topic, prefix="c", headers='{"n": 1e400}', ordering_key="k")
    outbox.wait_for("FAILED", bad)
    good = outbox.add(3, topic, prefix="d", ordering_key="other")
    outbox.wait_for("SENT", good)
    report = relay.stop()
    assert (report["failed"], report["sent"]) == (3, 3)
