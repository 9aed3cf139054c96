"""How far a delivery error reaches."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from bridge.kafka.failures import FailureClass, classify

OF_THE_MESSAGE = [
    "MSG_SIZE_TOO_LARGE",
    "INVALID_MSG",
    "INVALID_RECORD",
    "RECORD_LIST_TOO_LARGE",
    "INVALID_TIMESTAMP",
    "TOPIC_EXCEPTION",
    "_INVALID_ARG",
    "_BAD_MSG",
]

OF_THE_DELIVERY = [
    "_MSG_TIMED_OUT",
    "_TRANSPORT",
    "_ALL_BROKERS_DOWN",
    "_UNKNOWN_TOPIC",
    "_UNKNOWN_PARTITION",
    "UNKNOWN_TOPIC_OR_PART",
    "TOPIC_AUTHORIZATION_FAILED",
    "NOT_ENOUGH_REPLICAS",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "LEADER_NOT_AVAILABLE",
    "UNKNOWN",
]


@pytest.mark.parametrize("name", OF_THE_MESSAGE)
def test_what_no_later_attempt_can_help_is_the_messages_own(name: str) -> None:
    assert classify(KafkaError(getattr(KafkaError, name))) is FailureClass.MESSAGE


@pytest.mark.parametrize("name", OF_THE_DELIVERY)
def test_what_may_go_through_later_is_not_the_messages_fault(name: str) -> None:
    assert classify(KafkaError(getattr(KafkaError, name))) is FailureClass.DELIVERY


def test_codes_that_nobody_knows_may_go_through_later() -> None:
    assert classify(KafkaError(31_999)) is FailureClass.DELIVERY


@pytest.mark.parametrize("name", ["_FENCED", "INVALID_PRODUCER_EPOCH", "MSG_SIZE_TOO_LARGE"])
def test_a_fatal_error_is_fatal_whatever_its_code(name: str) -> None:
    error = KafkaError(getattr(KafkaError, name), "why", True)  # noqa: FBT003 - its signature
    assert classify(error) is FailureClass.FATAL
