"""The watch: what it does about topics, stalls, outages and records that are about to expire."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, cast

import pytest

from bridge.kafka.topics import Condition, TopicState
from bridge.relay.admission import Admission
from bridge.relay.batch import Batch
from bridge.relay.breakers import Breakers, State
from bridge.relay.flight import Flight
from bridge.relay.watch import STALL, Watch
from bridge.routing import Router

if TYPE_CHECKING:
    from bridge.kafka.topics import Topics
    from bridge.relay.producers import Producers
    from bridge.relay.target import Aim


class Cluster:
    """Stands in for Kafka: the topics as they look, and whether anybody answers."""

    def __init__(self) -> None:
        self.states: dict[str, TopicState] = {}
        self.answers = True
        self.created: list[str] = []
        self.forgotten: list[str] = []

    def look(self, topic: str, _timeout: float) -> TopicState:
        return self.states.get(topic) or TopicState(topic, Condition.PRESENT, partitions=3)

    def create(self, topic: str, _timeout: float) -> str | None:
        self.created.append(topic)
        self.states.pop(topic, None)
        return None

    def forget(self, topic: str) -> None:
        self.forgotten.append(topic)

    def cluster_answers(self, _timeout: float) -> bool:
        return self.answers


class Lines:
    """Stands in for the producers."""

    def __init__(self) -> None:
        self.purged = self.retired = 0

    def holds_records(self) -> bool:
        return True

    def purge(self) -> None:
        self.purged += 1

    def retire(self) -> None:
        self.retired += 1


class Known:
    """Stands in for what the publisher knows."""

    def __init__(self, *, fails_missing: bool = False) -> None:
        self.fails_missing = fails_missing
        self.learned: list[TopicState] = []

    def learn(self, state: TopicState) -> None:
        self.learned.append(state)


class Bench:
    def __init__(self, *, create: bool = False, fails_missing: bool = False) -> None:
        self.cluster, self.lines = Cluster(), Lines()
        self.known = Known(fails_missing=fails_missing)
        self.flight, self.breakers = Flight(1000, 1 << 20), Breakers()
        self.admission = Admission(self.flight, self.breakers)
        self.watch = Watch(
            cast("Topics", self.cluster),
            Router(),
            producers=cast("Producers", self.lines),
            flight=self.flight,
            breakers=self.breakers,
            admission=self.admission,
            aim=cast("Aim", self.known),
            create_missing=create,
            record_timeout=10.0,
        )

    def look(self, destination: str = "orders") -> State:
        self.breakers.allowance(destination, 1)
        self.watch._look(destination)
        return self.breakers.find(destination).state

    def enter(self, age: float, destination: str = "orders", lane: int | None = None) -> Batch:
        row: Any = (1, destination, *[None] * 10, lane)
        batch = Batch(f"claim-{age}-{lane}", [row], time.monotonic() - age)
        self.flight.enter(batch)
        account = self.flight.account(destination)
        account.moved_at = time.monotonic() - age
        return batch


MISSING = TopicState("orders", Condition.MISSING, reason="unknown topic")


def test_a_topic_that_is_there_lets_its_rows_go() -> None:
    bench = Bench()
    assert bench.look() is State.CLOSED
    assert bench.admission.changed.is_set()


def test_a_missing_topic_is_waited_for() -> None:
    bench = Bench()
    bench.cluster.states["orders"] = MISSING
    assert bench.look() is State.OPEN
    assert "TOPIC_MISSING" in bench.breakers.failing()["orders"]


def test_a_missing_topic_is_created_where_the_settings_say_so() -> None:
    bench = Bench(create=True)
    bench.cluster.states["orders"] = MISSING
    assert bench.look() is State.CLOSED
    assert bench.cluster.created == ["orders"]


def test_rows_of_a_missing_topic_go_on_to_fail_where_the_settings_say_so() -> None:
    bench = Bench(fails_missing=True)
    bench.cluster.states["orders"] = MISSING
    assert bench.look() is State.CLOSED


def test_a_name_that_no_topic_can_have_takes_no_look() -> None:
    bench = Bench()
    bench.cluster.states["no/topic"] = MISSING
    assert bench.look("no/topic") is State.CLOSED


def test_a_look_without_answer_is_an_outage_only_if_no_broker_answers() -> None:
    bench = Bench()
    bench.cluster.states["orders"] = TopicState("orders", Condition.UNREACHABLE)
    assert bench.look() is State.OPEN
    assert not bench.admission.outage.is_set()
    bench.cluster.answers = False
    bench.look("payments")
    bench.cluster.states["payments"] = TopicState("payments", Condition.UNREACHABLE)
    bench.look("payments")
    assert bench.admission.outage.is_set()


def test_an_outage_ends_with_an_answer() -> None:
    bench = Bench()
    bench.cluster.answers = False
    bench.watch._cluster_answers()
    bench.watch._next_probe = 0.0
    bench.watch._probe()
    assert bench.admission.outage.is_set()
    bench.cluster.answers = True
    bench.watch._next_probe = 0.0
    bench.watch._probe()
    assert not bench.admission.outage.is_set()
    assert bench.admission.changed.is_set()


def test_records_that_do_not_move_shut_their_destination_alone() -> None:
    bench = Bench()
    for name in ("orders", "payments"):
        bench.breakers.succeed(name)
    bench.enter(STALL + 1)
    bench.watch._find_stalls()
    assert "STALLED" in bench.breakers.failing()["orders"]
    assert bench.flight.account("orders").set_aside == 1
    assert "payments" not in bench.breakers.failing()


def test_records_that_do_not_move_in_a_silent_cluster_are_an_outage() -> None:
    bench = Bench()
    bench.breakers.succeed("orders")
    bench.enter(STALL + 1)
    bench.cluster.answers = False
    bench.watch._find_stalls()
    assert bench.admission.outage.is_set()
    assert bench.breakers.failing() == {}


def test_a_partition_without_leader_shuts_nothing_else() -> None:
    bench = Bench()
    bench.breakers.succeed("orders")
    state = TopicState("orders", Condition.PRESENT, partitions=3, leaderless=frozenset({1}))
    bench.cluster.states["orders"] = state
    bench.enter(STALL + 1)
    bench.watch._find_stalls()
    assert bench.breakers.failing() == {}
    assert bench.known.learned[-1].leaderless == {1}
    assert bench.flight.account("orders").set_aside == 1


def test_reports_that_wait_for_the_database_are_no_stall() -> None:
    bench = Bench()
    bench.breakers.succeed("orders")
    batch = bench.enter(STALL + 1)
    bench.flight.acks.append((1, 0, 0, batch))  # type: ignore[arg-type]  # as the callback gives it
    bench.watch._find_stalls()
    assert bench.breakers.failing() == {}


@pytest.mark.parametrize(
    ("age", "lane", "purges", "retires"),
    [(7.5, 5, 1, 0), (9.5, 5, 1, 1), (9.5, None, 0, 0), (5.0, 5, 0, 0)],
)
def test_ordered_records_are_taken_back_before_they_expire_one_by_one(
    age: float, lane: int | None, purges: int, retires: int
) -> None:
    bench = Bench()
    bench.breakers.succeed("orders")
    batch = bench.enter(age, lane=lane)
    taken: list[tuple[int, int, bool]] = []
    for _ in range(4):
        bench.watch._take_back_before_expiry()
        held = len(bench.flight.held_lanes) == 64
        taken.append((bench.lines.purged, bench.lines.retired, held))
    is_late = bool(purges)
    # Nothing is taken back in the turn in which the lanes are held.
    assert taken[0] == (0, 0, is_late)
    assert taken[-1] == (purges, retires, is_late)
    assert bool(bench.breakers.failing()) == is_late
    bench.flight.report([(1, batch)])
    bench.flight.leave([(1, batch)])
    bench.watch._take_back_before_expiry()
    assert bench.flight.held_lanes == frozenset()


def test_after_a_doubtful_refusal_the_topics_limit_is_read_anew() -> None:
    bench = Bench()
    bench.watch.on_doubt("orders")
    bench.watch._reread_limits()
    assert bench.cluster.forgotten == ["orders"]
    assert len(bench.known.learned) == 1
