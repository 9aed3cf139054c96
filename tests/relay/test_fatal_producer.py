"""A producer that cannot go on is replaced: no attempt is charged, no row reported twice."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from bridge.message import ClaimedRow
from bridge.relay.batch import Batch
from bridge.relay.flight import Flight
from bridge.relay.producers import Producers
from bridge.relay.publisher import Publisher
from bridge.relay.target import Aim
from bridge.routing import Router
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Message, Producer

    from bridge.relay.payloads import Payloads
    from bridge.relay.registration import Registration

FENCED = KafkaError(KafkaError._FATAL, "fenced", fatal=True)
REFUSED_AFTERWARDS = KafkaError(KafkaError._FATAL)
PURGED = KafkaError(KafkaError._PURGE_INFLIGHT)
ROW = ClaimedRow(1, "orders", "k", None, "t", None, 1, None, b"{}", None, None, None, None)


class Alive:
    """Stands in for the registration of a relay whose heart beats."""

    def __init__(self) -> None:
        self.alive = threading.Event()
        self.alive.set()
        self.registered_at = 0.0


class BreakingProducer:
    """Stands in for a producer, since a real broker gives fatal errors only by its bugs.

    It keeps what it gets; `break_down` is the fatal error of what came first, the rest is reported
    when it is purged, as librdkafka does, late and in its own thread.
    """

    def __init__(self, error: KafkaError, *, at_once: bool) -> None:
        self._error = error
        self._at_once = at_once
        self._waiting: list[Callable[[KafkaError | None, Message | None], None]] = []
        self._due: list[tuple[Callable[[KafkaError | None, Message | None], None], KafkaError]] = []
        self.purged = threading.Event()

    def produce(self, *_: object, on_delivery: Any, **__: object) -> None:
        if self._at_once:
            raise KafkaException(self._error)
        self._waiting.append(on_delivery)
        if len(self._waiting) == 1:
            self._due.append((self._waiting.pop(), self._error))

    def poll(self, _seconds: float) -> None:
        for report, error in [self._due.pop() for _ in range(len(self._due))]:
            report(error, None)

    def purge(self, **_: object) -> None:
        self._due += [(report, PURGED) for report in self._waiting]
        self._waiting = []
        self.purged.set()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._due)


def three_rows() -> Flight:
    """A batch that waits for the publisher, and the publisher's end behind it."""
    flight = Flight(10, 1000)
    rows = [ROW._replace(outbox_id=number) for number in (1, 2, 3)]
    flight.enter(Batch("claim", rows))
    flight.to_publish.put(None)
    return flight


def publish_all(flight: Flight, producers: Producers) -> None:
    Publisher(
        producers,
        payloads=cast("Payloads", None),
        aim=Aim(Router(), producers, flight, fail_missing=False, max_bytes=1000),
        flight=flight,
        on_fatal=producers.end_fatal,
        max_age=1000.0,
        registration=cast("Registration", Alive()),
    ).run()


@pytest.mark.parametrize("error", [FENCED, REFUSED_AFTERWARDS], ids=["report", "afterwards"])
@pytest.mark.parametrize("at_once", [True, False])
def test_a_fatal_error_gives_each_row_back_once_and_a_new_producer_takes_over(
    error: KafkaError, *, at_once: bool
) -> None:
    flight = three_rows()
    made: list[BreakingProducer] = []

    def create(_overrides: object) -> Producer:
        made.append(BreakingProducer(error, at_once=at_once))
        return cast("Producer", made[-1])

    producers = Producers(create, batch_bytes=1000)
    try:
        publish_all(flight, producers)
        wait_until(lambda: len(flight.unsent) == 3, "each row is reported")
        first = made[0]
        assert first.purged.is_set()
        assert producers.main() is not cast("Producer", first)
        assert len(made) == 2
    finally:
        producers.finish()
    assert sorted(item.outbox_id for item in flight.unsent) == [1, 2, 3]
    # It may have been sent before the producer broke: the count of hand-overs stays.
    assert all(item.handed for item in flight.unsent)
    assert [*flight.acks, *flight.refusals, *flight.faults] == []


class ReplacedProducer:
    """Stands in for a producer that is replaced at its first record, and takes the others, too."""

    def __init__(self) -> None:
        self.polls = 0
        self.replace: Callable[[], None] = lambda: None
        self._due: list[Callable[[KafkaError | None, Message | None], None]] = []

    def produce(self, *_: object, on_delivery: Any, **__: object) -> None:
        self._due.append(on_delivery)
        replace, self.replace = self.replace, lambda: None
        replace()

    def poll(self, _seconds: float) -> None:
        self.polls += 1
        for report in [self._due.pop() for _ in range(len(self._due))]:
            report(PURGED, None)

    def purge(self, **_: object) -> None:
        pass

    def __len__(self) -> int:
        return len(self._due)


def test_what_a_batch_hands_to_a_producer_that_was_replaced_meanwhile_is_reported() -> None:
    """In an outage, say: the publisher waits for room in a queue that is then taken back."""
    flight = three_rows()
    old = ReplacedProducer()
    producers = Producers(lambda _: cast("Producer", old), batch_bytes=1000)

    def replace() -> None:
        (thread,) = producers.threads()
        served.append(thread)
        producers.retire()
        polls = old.polls
        wait_until(lambda: old.polls > polls + 2 and not len(old), "it is served on")

    served: list[threading.Thread] = []
    old.replace = replace
    try:
        publish_all(flight, producers)
        wait_until(lambda: len(flight.unsent) == 3, "each row is reported")
        wait_until(lambda: not served[0].is_alive(), "then nobody serves it any more")
    finally:
        producers.finish()


def test_a_healthy_producer_is_kept() -> None:
    made: list[object] = []

    def create(overrides: object) -> Producer:
        made.append(overrides)
        return cast("Producer", BreakingProducer(FENCED, at_once=False))

    producers = Producers(create, batch_bytes=262_144)
    try:
        assert producers.main() is producers.main() is producers.for_limit(None)
        assert producers.for_limit(1_000_000) is producers.main()
        assert producers.lone() is not producers.main()
    finally:
        producers.finish()
    assert made == [{}, {"batch.num.messages": 1}]


def test_topics_with_a_small_limit_get_batches_that_fit_it() -> None:
    made: list[dict[str, int]] = []

    def create(overrides: Any) -> Producer:
        made.append(overrides)
        return cast("Producer", BreakingProducer(FENCED, at_once=False))

    producers = Producers(create, batch_bytes=262_144)
    try:
        small = producers.for_limit(100_000)
        assert producers.for_limit(99_000) is small
        assert producers.for_limit(2_000) is not small
    finally:
        producers.finish()
    assert [overrides["batch.size"] for overrides in made] == [65_536, 1024]
