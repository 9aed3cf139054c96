"""A producer that cannot go on ends the relay; it costs no message an attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from bridge.kafka.failures import FailureClass, classify
from bridge.message import ClaimedRow
from bridge.relay.batch import Batch
from bridge.relay.flight import Flight
from bridge.relay.publisher import Publisher
from bridge.routing import Router

if TYPE_CHECKING:
    from confluent_kafka import Message, Producer

    from bridge.database.session import Session

FENCED = KafkaError(KafkaError._FATAL, "fenced", fatal=True)
REFUSED_AFTERWARDS = KafkaError(KafkaError._FATAL)


class FatalProducer:
    """Stands in for a producer after a fatal error, which a real broker gives only by its bugs."""

    def __init__(self, error: KafkaError, *, at_once: bool) -> None:
        self._error = error
        self._at_once = at_once

    def produce(self, *_: object, on_delivery: object, **__: object) -> None:
        if self._at_once:
            raise KafkaException(self._error)
        on_delivery(self._error, cast("Message", None))  # type: ignore[operator] # a callback


@pytest.mark.parametrize("error", [FENCED, REFUSED_AFTERWARDS], ids=["report", "afterwards"])
@pytest.mark.parametrize("at_once", [True, False])
def test_a_fatal_error_reports_no_row_as_failed(error: KafkaError, *, at_once: bool) -> None:
    assert classify(error).failure_class is FailureClass.FATAL
    flight = Flight(10, 1000)
    row = ClaimedRow(1, "orders", "k", None, "t", None, 1, None, b"{}", None, None, None, None)
    flight.enter(Batch("claim", [row]))
    flight.to_publish.put(None)
    told: list[str] = []

    Publisher(
        cast("Producer", FatalProducer(error, at_once=at_once)),
        lone_producer=lambda: pytest.fail("no record is suspected"),
        session=cast("Session", None),
        router=Router(),
        flight=flight,
        on_fatal=told.append,
        max_age=1.0,
    ).run()

    assert told
    assert flight.rows == 1
    assert [*flight.acks, *flight.refusals, *flight.faults, *flight.unsent] == []
