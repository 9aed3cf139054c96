"""The publisher hands nothing to Kafka that may be another relay's by now."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, cast

import pytest

from bridge.message import ClaimedRow
from bridge.relay.batch import Batch
from bridge.relay.flight import Flight
from bridge.relay.producers import Producers
from bridge.relay.publisher import Publisher
from bridge.relay.target import Aim
from bridge.routing import Router
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Producer

    from bridge.relay.payloads import Payloads
    from bridge.relay.registration import Registration

ROW = ClaimedRow(1, "orders", "k", None, "t", None, 1, None, b"{}", None, None, None, None)


class Recording:
    """Stands in for a producer."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def produce(self, _topic: str, value: object, *_: object, **__: object) -> None:
        self.values.append(value)

    def poll(self, seconds: float) -> None:
        time.sleep(min(seconds, 0.01))

    def __len__(self) -> int:
        return 0


class Heart:
    """Stands in for the registration."""

    def __init__(self) -> None:
        self.alive = threading.Event()
        self.registered_at = 0.0


class Desk:
    def __init__(self, max_age: float = 60.0) -> None:
        self.kafka, self.heart, self.flight = Recording(), Heart(), Flight(100, 1 << 20)
        self.producers = Producers(lambda _: cast("Producer", self.kafka), batch_bytes=1000)
        self.publisher = Publisher(
            self.producers,
            payloads=cast("Payloads", None),
            aim=Aim(Router(), self.producers, self.flight, fail_missing=False, max_bytes=10_000),
            flight=self.flight,
            on_fatal=lambda _: None,
            max_age=max_age,
            registration=cast("Registration", self.heart),
        )
        self.thread = threading.Thread(target=self.publisher.run, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.flight.to_publish.put(None)
        self.heart.alive.set()
        self.thread.join(10)
        self.producers.finish()


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.close()


def test_while_the_heartbeat_session_is_lost_nothing_is_handed_over(desk: Desk) -> None:
    desk.flight.enter(Batch("claim", [ROW], time.monotonic()))
    threading.Event().wait(0.3)
    assert desk.kafka.values == []
    desk.heart.alive.set()
    wait_until(lambda: desk.kafka.values == [b"{}"], "it goes on with the session")


def test_what_was_claimed_under_an_earlier_identity_goes_back(desk: Desk) -> None:
    desk.heart.registered_at = time.monotonic()
    desk.heart.alive.set()
    desk.flight.enter(Batch("claim", [ROW], time.monotonic() - 5))
    wait_until(lambda: len(desk.flight.unsent) == 1, "the row goes back")
    assert desk.kafka.values == []


def test_rows_that_grow_too_old_meanwhile_go_back() -> None:
    desk = Desk(max_age=0.2)
    desk.flight.enter(Batch("claim", [ROW], time.monotonic()))
    wait_until(lambda: len(desk.flight.unsent) == 1, "the row goes back")
    desk.close()
    assert desk.kafka.values == []


def test_rows_of_a_lane_that_is_held_go_back_and_others_go_on(desk: Desk) -> None:
    desk.heart.alive.set()
    held = ROW._replace(outbox_id=1, ordering_key="a", lane=7)
    free = ROW._replace(outbox_id=2, ordering_key="b", lane=8)
    plain = ROW._replace(outbox_id=3)
    desk.flight.hold_lanes(frozenset({7}))
    desk.flight.enter(Batch("claim", [held, free, plain], time.monotonic()))
    wait_until(lambda: len(desk.kafka.values) == 2, "two rows go on")
    assert [item.outbox_id for item in desk.flight.unsent] == [1]


def test_a_doubtful_record_waits_until_nothing_of_its_key_is_before_it(desk: Desk) -> None:
    desk.heart.alive.set()
    large = b"x" * 20_000
    first = ROW._replace(outbox_id=1, ordering_key="a", lane=7)
    doubtful = ROW._replace(outbox_id=2, ordering_key="a", lane=7, payload_json=large)
    follower = ROW._replace(outbox_id=3, ordering_key="a", lane=7)
    other = ROW._replace(outbox_id=4, ordering_key="b", lane=9)
    one = Batch("one", [first, doubtful, follower, other], time.monotonic())
    desk.flight.enter(one)
    wait_until(lambda: len(desk.kafka.values) == 2, "what does not follow it goes on")
    assert [item.outbox_id for item in desk.flight.unsent] == [2, 3]
    desk.flight.leave([(n, one) for n in (1, 2, 3, 4)])
    desk.flight.unsent.clear()

    desk.flight.enter(Batch("two", [doubtful, follower, other], time.monotonic()))
    wait_until(lambda: len(desk.kafka.values) == 4, "it goes when it is the first of its key")
    assert large in desk.kafka.values
    assert [item.outbox_id for item in desk.flight.unsent] == [3]
