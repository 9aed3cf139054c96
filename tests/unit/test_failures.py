"""How far a delivery error reaches, and whether it counts against the message."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from bridge.kafka.failure_table import BROKER, FATAL, LASTING, MESSAGE, PASSING, VERDICTS
from bridge.kafka.failures import FailureClass, Verdict, classify, verdict_of

PAGE = Path(__file__).parents[2] / "docs" / "failure-classes.md"

CODES = {
    name: code
    for name in dir(KafkaError)
    if not name.startswith("__") and isinstance(code := getattr(KafkaError, name), int)
}
"""Every code that the installed client can report, by name."""
ERRORS = {name: code for name, code in CODES.items() if code != KafkaError.NO_ERROR}

EXAMPLES = {
    "_ALL_BROKERS_DOWN": BROKER,
    "_AUTHENTICATION": BROKER,
    "_SSL": BROKER,
    "SASL_AUTHENTICATION_FAILED": BROKER,
    "CLUSTER_AUTHORIZATION_FAILED": BROKER,
    "_MSG_TIMED_OUT": PASSING,
    "_TIMED_OUT": PASSING,
    "_TRANSPORT": PASSING,
    "_PURGE_QUEUE": PASSING,
    "_PURGE_INFLIGHT": PASSING,
    "LEADER_NOT_AVAILABLE": PASSING,
    "NOT_LEADER_FOR_PARTITION": PASSING,
    "NOT_ENOUGH_REPLICAS": PASSING,
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": PASSING,
    "NETWORK_EXCEPTION": PASSING,
    "KAFKA_STORAGE_ERROR": PASSING,
    "_UNKNOWN_TOPIC": LASTING,
    "_UNKNOWN_PARTITION": LASTING,
    "UNKNOWN_TOPIC_OR_PART": LASTING,
    "TOPIC_AUTHORIZATION_FAILED": LASTING,
    "POLICY_VIOLATION": LASTING,
    "UNKNOWN": LASTING,
    "MSG_SIZE_TOO_LARGE": MESSAGE,
    "INVALID_MSG": MESSAGE,
    "INVALID_RECORD": MESSAGE,
    "RECORD_LIST_TOO_LARGE": MESSAGE,
    "INVALID_TIMESTAMP": MESSAGE,
    "TOPIC_EXCEPTION": MESSAGE,
    "_INVALID_ARG": MESSAGE,
    "_BAD_MSG": MESSAGE,
    "_INVALID_DIFFERENT_RECORD": MESSAGE,
    "_FATAL": FATAL,
    "_FENCED": FATAL,
    "PRODUCER_FENCED": FATAL,
    "INVALID_PRODUCER_EPOCH": FATAL,
    "OUT_OF_ORDER_SEQUENCE_NUMBER": FATAL,
    "UNKNOWN_PRODUCER_ID": FATAL,
}


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_every_code_of_the_installed_client_has_its_place_in_the_table(name: str) -> None:
    assert name in VERDICTS
    assert verdict_of(ERRORS[name]) is VERDICTS[name]
    assert classify(KafkaError(ERRORS[name])) is VERDICTS[name]


def test_the_table_names_no_code_that_does_not_exist_and_none_twice() -> None:
    assert set(VERDICTS) == set(ERRORS)
    assert len(set(ERRORS.values())) == len(ERRORS)


@pytest.mark.parametrize(("name", "verdict"), EXAMPLES.items())
def test_what_each_kind_of_error_means(name: str, verdict: Verdict) -> None:
    assert classify(KafkaError(getattr(KafkaError, name))) == verdict


@pytest.mark.parametrize("code", [31_999, -9_999, 98])
def test_codes_that_nobody_knows_are_the_destinations_and_charged(code: int) -> None:
    assert code not in CODES.values()
    assert classify(KafkaError(code)) == Verdict(FailureClass.DESTINATION, charged=True)


@pytest.mark.parametrize("name", ["_FENCED", "MSG_SIZE_TOO_LARGE", "_ALL_BROKERS_DOWN", "UNKNOWN"])
def test_a_fatal_error_is_fatal_whatever_its_code(name: str) -> None:
    error = KafkaError(getattr(KafkaError, name), "why", True)  # noqa: FBT003 - its signature
    assert classify(error) == Verdict(FailureClass.FATAL, charged=False)


def test_no_outage_and_no_unusable_producer_costs_a_message_an_attempt() -> None:
    for name, verdict in VERDICTS.items():
        if verdict.failure_class in {FailureClass.BROKER, FailureClass.FATAL}:
            assert not verdict.charged, name
        if verdict.failure_class is FailureClass.MESSAGE:
            assert verdict.charged, name


def test_the_page_repeats_the_table() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| (-?\d+) \| (\w+) \| (yes|no) \|$", PAGE.read_text(), re.MULTILINE
    )
    assert rows == [
        (name, str(ERRORS[name]), verdict.failure_class, "yes" if verdict.charged else "no")
        for name, verdict in VERDICTS.items()
    ]
