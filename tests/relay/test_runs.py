"""Runs with an end: `--once`, `--limit`, `--until-empty`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg

from tests.fixtures.postgres import on_one_server
from tests.fixtures.relays import PATIENCE
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from tests.fixtures.cli import RunCliFunction
    from tests.fixtures.kafka import ConsumeFunction, NewTopicFunction
    from tests.fixtures.relays import Outbox, RunRelayFunction, StartRelayFunction


def test_once_sends_at_most_the_limit(
    outbox: Outbox,
    run_relay: RunRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
) -> None:
    topics = [new_topic("a"), new_topic("b")]
    outbox.add(30, topics[0], prefix="a")
    outbox.add(30, topics[1], prefix="b")
    outbox.add(30, topics[0], prefix="o", ordering_key="k")

    for done in (40, 80):
        assert run_relay("--once", "--limit", "40")["sent"] == 40
        assert outbox.counts() == {"SENT": done, "PENDING": 90 - done}
        outbox.assert_nothing_is_left_behind()
    assert run_relay("--once", "--limit", "40")["sent"] == 10
    assert run_relay("--once")["sent"] == 0
    assert len(consume(topics[0])) + len(consume(topics[1])) == 90


def test_until_empty_sends_all_that_is_due_and_counts_what_is_not(
    outbox: Outbox, start_relay: StartRelayFunction, new_topic: NewTopicFunction
) -> None:
    topic = new_topic()
    due = outbox.add(2500, topic)
    failing = outbox.add(2, "no topic", prefix="bad")
    later = outbox.add(7, topic, prefix="later", next_run_at="infinity")
    later += outbox.add(3, topic, prefix="o", ordering_key="k", next_run_at="2999-01-01")

    relay = start_relay("--until-empty", wait=False)

    assert relay.process.wait(PATIENCE) == 0
    assert {row.status for row in outbox.rows(due)} == {"SENT"}
    assert {row.status for row in outbox.rows(failing)} == {"FAILED"}
    assert {row.status for row in outbox.rows(later)} == {"PENDING"}
    report = relay.report
    assert (report["sent"], report["failed"], report["later"]) == (2500, 2, 10)
    outbox.assert_nothing_is_left_behind()


@on_one_server
def test_until_empty_says_on_stderr_how_many_rows_wait_for_later(
    outbox: Outbox, run_cli: RunCliFunction, new_topic: NewTopicFunction
) -> None:
    outbox.add(4, new_topic(), next_run_at="infinity")
    done = run_cli("relay", "--until-empty")
    assert "waiting for a later time 4" in done.stderr
    assert done.stdout == ""


@on_one_server
def test_until_empty_waits_for_a_row_that_somebody_has_locked(
    outbox: Outbox, start_relay: StartRelayFunction, new_topic: NewTopicFunction
) -> None:
    topic = new_topic()
    ids = outbox.add(10, topic)
    with psycopg.connect(outbox.url) as operator:
        operator.execute("select from app_outbox where outbox_id = %s for update", [ids[3]])
        relay = start_relay("--until-empty")
        outbox.wait_for("SENT", [outbox_id for outbox_id in ids if outbox_id != ids[3]])
        wait_until(
            lambda: outbox.value("select heartbeat_at > started_at from app_outbox_relay"),
            "it goes on waiting",
            PATIENCE,
        )
        assert relay.process.running
    assert relay.process.wait(PATIENCE) == 0
    assert outbox.counts() == {"SENT": 10}


@on_one_server
def test_until_empty_of_an_empty_outbox_ends_at_once(
    outbox: Outbox, run_relay: RunRelayFunction, new_topic: NewTopicFunction
) -> None:
    report = run_relay()
    assert (report["sent"], report["later"]) == (0, 0)
