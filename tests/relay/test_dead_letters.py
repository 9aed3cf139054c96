"""Dead letters: the record of a row that ends FAILED goes to its route's topic, with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fixtures.postgres import on_one_server
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.kafka import ConsumeFunction, NewTopicFunction
    from tests.fixtures.relays import Outbox, RunRelayFunction, StartRelayFunction

pytestmark = on_one_server


def configure(folder: Path, destination: str, dead: str, topic: str | None = None) -> str:
    file = folder / "dead.toml"
    lines = [f'destination = "{destination}"', f'dead_letter = "{dead}"']
    lines += [f'topic = "{topic}"'] if topic else []
    file.write_text("[[routes]]\n" + "\n".join(lines) + "\n", "utf-8")
    return str(file)


def test_a_row_that_can_never_be_sent_is_failed_and_its_record_is_a_dead_letter(
    outbox: Outbox,
    run_relay: RunRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
    tmp_path: Path,
) -> None:
    topic, dead = new_topic("small", config={"max.message.bytes": "2000"}), new_topic("dead")
    payload = '"' + "x" * 5000 + '"'
    (guilty,) = outbox.add(1, topic, prefix="guilty", payload_json=payload)
    good = outbox.add(5, topic, prefix="good")

    report = run_relay(config=configure(tmp_path, topic, dead), kafka_compression_type="none")

    row = outbox.row(guilty)
    assert (row.status, row.last_error_code, row.retry_count) == ("FAILED", "MESSAGE_TOO_LARGE", 1)
    assert {one.status for one in outbox.rows(good)} == {"SENT"}
    assert (report["sent"], report["failed"]) == (5, 1)
    (letter,) = consume(dead)
    headers = letter.headers
    assert letter.value == payload.encode()
    assert letter.key == b"guilty-1"
    assert headers["dead-letter-code"] == "MESSAGE_TOO_LARGE"
    assert headers["dead-letter-topic"] == topic
    assert headers["dead-letter-destination"] == topic
    assert headers["dead-letter-attempts"] == "1"
    assert headers["idempotency-key"] == "guilty-1"
    assert headers["dead-letter-reason"]
    assert headers["dead-letter-failed-at"]
    outbox.assert_nothing_is_left_behind()


def test_rows_of_a_destination_that_no_topic_can_have_are_dead_letters(
    outbox: Outbox,
    run_relay: RunRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
    tmp_path: Path,
) -> None:
    dead = new_topic("dead")
    ids = outbox.add(2, "no/topic", prefix="bad")
    run_relay(config=configure(tmp_path, "no/topic", dead))
    assert {row.status for row in outbox.rows(ids)} == {"FAILED"}
    assert sorted(letter.headers["idempotency-key"] for letter in consume(dead)) == [
        "bad-1",
        "bad-2",
    ]


def test_where_the_dead_letter_topic_refuses_it_the_row_is_failed_and_says_so(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    tmp_path: Path,
) -> None:
    config = {"max.message.bytes": "2000"}
    topic, dead = new_topic("small", config=config), new_topic("dead", config=config)
    (guilty,) = outbox.add(1, topic, payload_json='"' + "x" * 5000 + '"')
    start_relay(config=configure(tmp_path, topic, dead), kafka_compression_type="none")
    wait_until(lambda: outbox.row(guilty).status == "FAILED", "it is FAILED")
    assert dead in (outbox.row(guilty).last_error_msg or "")
