"""Switches act on relays that run: within two seconds, shared among them, and after a restart."""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.postgres import on_one_server
from tests.fixtures.relays import PATIENCE
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.cli import RunCliFunction
    from tests.fixtures.kafka import NewTopicFunction
    from tests.fixtures.relays import Outbox, RunRelayFunction, StartRelayFunction

# Clocks and switches are the same in every version; tests/control/test_switches.py runs on both.
pytestmark = on_one_server

WHY = ("--reason", "a test")
PROMISED = 2.0
"""Seconds by the database's clock until a switch has acted on rows as they are marked SENT."""
ATTEMPTS = 5
"""A loaded machine may be late now and then; who does not look at its switches always is."""


def sent(outbox: Outbox, destination: str) -> int:
    count: int = outbox.value(
        "select count(*) from app_outbox where destination = %s and status = 'SENT'", destination
    )
    return count


def wait_for_more(outbox: Outbox, destination: str, rows: int = 20) -> None:
    goal = sent(outbox, destination) + rows
    wait_until(lambda: sent(outbox, destination) >= goal, f"{destination} flows", PATIENCE)


def wait_for_silence(outbox: Outbox, destination: str) -> None:
    """Wait until for three seconds nothing has been sent and nothing is in flight."""
    wait_until(
        lambda: outbox.value(
            """
            select coalesce(max(sent_at) < now() - interval '3 s', true)
                and bool_and(status <> 'PROCESSING')
            from app_outbox where destination = %s
            """,
            destination,
        ),
        f"nothing flows to {destination}",
        PATIENCE,
    )


def acted_after(outbox: Outbox, action: str, first_or_last: str) -> float:
    """Seconds from the latest such action to the first row sent after it, or to the last of all."""
    seconds: float = outbox.value(
        f"""
        select extract(epoch from {first_or_last}(o.sent_at) - max(a.changed_at))::float8
        from app_outbox as o,
            (
                select max(changed_at) as changed_at from app_outbox_audit where action_name = %s
            ) as a
        where %s = 'max' or o.sent_at > a.changed_at
        """,
        action,
        first_or_last,
    )
    return seconds


def assert_in_time(act: Callable[[], float], undo: Callable[[], object]) -> None:
    """Switch until it acts within the promised time; `act` returns the seconds that it took."""
    took = [act()]
    while took[-1] >= PROMISED:
        assert len(took) < ATTEMPTS, took
        undo()
        took.append(act())


ORDER = pytest.mark.parametrize(
    "keys", [{}, {"ordering_key": "k"}], ids=["without key", "with ordering key"]
)


@ORDER
@pytest.mark.parametrize("everything", [False, True], ids=["one", "all"])
def test_a_pause_acts_within_two_seconds_and_survives_a_restart(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    run_cli: RunCliFunction,
    keys: dict[str, str],
    *,
    everything: bool,
) -> None:
    slow, other = new_topic("slow"), new_topic("other")
    which = () if everything else (slow,)
    run_cli("limit", slow, "--rows-per-second", "100", *WHY)
    outbox.add(6000, slow, prefix="slow", **keys)
    relay = start_relay()
    wait_for_more(outbox, slow)

    def pause() -> float:
        run_cli("pause", *which, *WHY)
        wait_for_silence(outbox, slow)
        return acted_after(outbox, "pause", "max")

    def resume() -> float:
        run_cli("resume", *which, *WHY)
        wait_for_more(outbox, slow)
        return acted_after(outbox, "resume", "min")

    assert_in_time(pause, resume)
    relay.stop()
    start_relay()
    stopped_at = sent(outbox, slow)
    probe = outbox.add(1, other, prefix="probe")
    if not everything:
        outbox.wait_for("SENT", probe)
    wait_for_silence(outbox, slow)
    assert sent(outbox, slow) == stopped_at
    if everything:
        assert outbox.row(probe[0]).status == "PENDING"

    assert_in_time(resume, pause)
    outbox.wait_for("SENT", probe)
    assert [
        row[0] for row in outbox.query("select retry_count from app_outbox where retry_count > 0")
    ] == []


def test_a_relay_that_would_sleep_for_an_hour_is_woken_by_a_resume(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    run_cli: RunCliFunction,
) -> None:
    topic = new_topic()
    run_cli("pause", *WHY)
    start_relay(relay_sleep=3600)
    ids = outbox.add(3, topic)
    run_cli("resume", *WHY)
    outbox.wait_for("SENT", ids)


@ORDER
def test_a_run_until_empty_does_not_wait_for_what_is_paused(
    outbox: Outbox,
    run_relay: RunRelayFunction,
    new_topic: NewTopicFunction,
    run_cli: RunCliFunction,
    keys: dict[str, str],
) -> None:
    paused, free = new_topic("paused"), new_topic("free")
    run_cli("pause", paused, *WHY)
    kept = outbox.add(5, paused, prefix="kept", **keys)
    outbox.add(5, free, prefix="free", **keys)
    assert run_relay()["sent"] == 5
    assert {row.status for row in outbox.rows(kept)} == {"PENDING"}
    run_cli("pause", *WHY)
    outbox.add(5, free, prefix="late", **keys)
    assert run_relay()["sent"] == 0
    run_cli("resume", *WHY)
    run_cli("resume", paused, *WHY)
    assert run_relay()["sent"] == 10


@ORDER
def test_a_claim_takes_no_more_rows_than_the_switch_says(
    outbox: Outbox,
    run_relay: RunRelayFunction,
    new_topic: NewTopicFunction,
    run_cli: RunCliFunction,
    keys: dict[str, str],
) -> None:
    topic = new_topic()
    outbox.add(40, topic, **keys)
    run_cli("batch", "--rows", "3", *WHY)
    assert run_relay("--once")["sent"] == 3
    run_cli("batch", topic, "--rows", "7", *WHY)
    assert run_relay("--once")["sent"] == 7
    run_cli("batch", topic, "--off", *WHY)
    assert run_relay("--once")["sent"] == 3
    assert run_relay()["sent"] == 27


def test_two_relays_hold_a_limit_together(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    run_cli: RunCliFunction,
) -> None:
    """One of them takes its rows in small claims, so that their shares differ."""
    topic, rate = new_topic(), 300
    run_cli("limit", topic, "--rows-per-second", str(rate), *WHY)
    outbox.add(rate * 60, topic)
    relays = [start_relay(), start_relay(relay_batch_rows=10)]
    wait_for_more(outbox, topic, rate)  # both are under way, the full bucket is used up

    def sample() -> tuple[int, float]:
        count, at = outbox.query(
            "select count(*), extract(epoch from now())::float8 from app_outbox "
            "where status = 'SENT'"
        )[0]
        return count, at

    def pace() -> float:
        first, began = last, ended = sample()
        while ended - began < 8:
            wait_for_more(outbox, topic, rate // 2)
            last, ended = sample()
        return (last - first) / (ended - began)

    # A relay that stalls loses its part for good, so a loaded machine has more than one try.
    paces: list[float] = []
    while not (paces and paces[-1] == pytest.approx(rate, rel=0.1)):
        assert len(paces) < ATTEMPTS, paces
        paces.append(pace())
    run_cli("limit", topic, "--off", *WHY)
    outbox.wait_all_sent()
    reports = [relay.stop() for relay in relays]
    assert all(report["sent"] > 0 for report in reports)


def test_a_new_row_is_sent_long_before_a_backlog_that_was_there_first(
    outbox: Outbox, start_relay: StartRelayFunction, new_topic: NewTopicFunction
) -> None:
    """Counted in rows that went first; how long that takes is for `python -m tests.bench fair`."""
    topic = new_topic("backlog")
    others = [new_topic(f"other-{number}", partitions=1) for number in range(5)]
    outbox.add(100_000, topic, prefix="backlog")
    start_relay()
    wait_for_more(outbox, topic, 1000)
    went_first = []
    for number, other in enumerate(others):
        (probe,) = outbox.wait_for("SENT", outbox.add(1, other, prefix=f"probe-{number}"))
        went_first.append(
            outbox.value(
                "select count(*) from app_outbox as o, app_outbox as p "
                "where p.outbox_id = %s and o.sent_at between p.created_at and p.sent_at",
                probe.outbox_id,
            )
        )
    left = outbox.value("select count(*) from app_outbox where status = 'PENDING'")
    assert left > 0, "the backlog must outlast the probes"
    # What was claimed already, and what is claimed while the new topic is looked at.
    assert statistics.median(went_first) < 30_000, went_first


def test_limited_and_closed_destinations_do_not_slow_the_others_down(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    run_cli: RunCliFunction,
) -> None:
    limited, closed, free = new_topic("limited"), new_topic("closed"), new_topic("free")
    run_cli("limit", limited, "--rows-per-second", "20", *WHY)
    run_cli("pause", closed, *WHY)
    outbox.add(5000, limited, prefix="limited")
    outbox.add(5000, closed, prefix="closed")
    start_relay()
    wait_for_more(outbox, limited)
    ids = outbox.add(5000, free, prefix="free")
    outbox.wait_for("SENT", ids)
    assert sent(outbox, limited) < 2500
    assert sent(outbox, closed) == 0
    status: dict[str, Any] = json.loads(run_cli("status", "--json").stdout)
    assert {(one["destination"], one["switch"]) for one in status["switches"]} == {
        (limited, "rows_per_second"),
        (closed, "paused"),
    }
