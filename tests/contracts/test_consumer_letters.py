"""A consumer's dead letters have the headers that the contract says."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

from bridge.consumer.dead_letters import dead_letter_headers
from tests.contracts.documents import problems
from tests.fixtures.kafka import ReceivedRecord


def test_a_consumers_dead_letter_has_the_headers_that_the_contract_says() -> None:
    record = SimpleNamespace(
        topic="orders",
        partition=3,
        offset=17,
        headers=[("idempotency-key", b"k"), ("dead-letter-code", b"OLDER"), ("empty", None)],
    )
    headers = dead_letter_headers(
        record,
        code="HANDLER_FAILED",
        reason="x" * 5000,
        consumer="billing",
        attempts=5,
        failed_at=datetime.now(UTC),
    )
    received = ReceivedRecord(
        "dead", 0, 0, b"k", None, {name: value.decode() for name, value in headers}, 0
    )
    assert problems(received, "consumerDeadLetters") == []
    del received.headers["dead-letter-consumer"]
    assert problems(received, "consumerDeadLetters") == [
        "'dead-letter-consumer' is a required property"
    ]
