"""Where a destination's rows go: what a look at its topic changes, and when."""

from __future__ import annotations

from typing import Any, cast

from bridge.kafka.topics import Condition, TopicState
from bridge.lifecycle import ErrorCode
from bridge.relay.batch import Batch
from bridge.relay.flight import Flight
from bridge.relay.target import Aim
from bridge.routing import Router, Rule


class Lines:
    """Stands in for the producers: a name instead of each."""

    def for_limit(self, limit: int | None) -> str:
        return "main" if limit is None or limit > 500_000 else f"batches for {limit}"


def batch(rows: int = 1, destination: str = "orders") -> Batch:
    row: list[Any] = [None, destination, *[None] * 11]
    return Batch(f"claim-{rows}", [(n, *row[1:]) for n in range(rows)])  # type: ignore[misc]  # as it comes from psycopg


def made(*rules: Rule, fail_missing: bool = False) -> tuple[Aim, Flight]:
    flight = Flight(100, 1 << 20)
    lines = cast("Any", Lines())
    aim = Aim(Router(rules), lines, flight, fail_missing=fail_missing, max_bytes=1_000_000)
    return aim, flight


def present(limit: int | None = None, **known: Any) -> TopicState:
    state = TopicState("orders", Condition.PRESENT, partitions=3, max_message_bytes=limit)
    return TopicState(**{name: known.get(name, getattr(state, name)) for name in state.__slots__})


def test_a_topic_with_a_small_limit_has_a_producer_of_its_own() -> None:
    aim, _ = made()
    assert aim.at("orders", batch()).producer == "main"  # type: ignore[comparison-overlap]  # a name here
    aim, _ = made()
    aim.learn(present(10_000))
    target = aim.at("orders", batch())
    assert target.producer == "batches for 10000"  # type: ignore[comparison-overlap]  # see above
    assert target.max_bytes == 10_000
    assert target.plain_bytes < target.max_bytes


def test_a_new_limit_waits_until_what_went_by_the_old_one_is_reported() -> None:
    aim, flight = made()
    aim.learn(present(600_000))
    first, second = batch(1), batch(2)
    flight.enter(first)
    assert aim.at("orders", first).max_bytes == 600_000
    aim.learn(present(10_000))
    flight.enter(second)
    assert aim.at("orders", second).max_bytes == 600_000
    flight.report([(0, first)])
    assert aim.at("orders", second).max_bytes == 10_000


def test_the_producers_own_limit_is_one_too() -> None:
    aim, _ = made()
    aim.learn(present(50_000_000))
    assert aim.at("orders", batch()).max_bytes == 1_000_000


def test_a_missing_topic_is_a_problem_only_where_the_settings_say_so() -> None:
    missing = TopicState("orders", Condition.MISSING)
    for fail_missing, code in ((False, None), (True, ErrorCode.UNKNOWN_TOPIC)):
        aim, _ = made(fail_missing=fail_missing)
        aim.learn(missing)
        target = aim.at("orders", batch())
        assert (target.problem_code if target.problem else None) == code


def test_partitions_without_leader_and_the_dead_letter_topic_are_told() -> None:
    aim, _ = made(Rule("orders", dead_letter="dead"))
    aim.learn(present(leaderless=frozenset({2})))
    target = aim.at("orders", batch())
    assert target.leaderless == {2}
    assert target.dead_letter == "dead"
    assert target.partition_of("key") in range(3)
    assert target.partition_of(None) == -1
