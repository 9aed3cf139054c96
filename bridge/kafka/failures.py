"""What a delivery error says about the message: error code to class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import KafkaError

from bridge.kafka.failure_table import FATAL, LASTING, VERDICTS, FailureClass, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FailureClass", "Verdict", "classify", "verdict_of"]

# An older client does not know the newest names, and so never reports their codes.
_BY_CODE: Mapping[int, Verdict] = {
    getattr(KafkaError, name): verdict
    for name, verdict in VERDICTS.items()
    if hasattr(KafkaError, name)
}


def verdict_of(code: int) -> Verdict:
    """Return what an error code means; an unknown one is the destination's, charged."""
    return _BY_CODE.get(code, LASTING)


def classify(error: KafkaError) -> Verdict:
    """Return what a delivery error means; one that is marked fatal is fatal whatever its code."""
    # What is produced after a fatal error carries the code _FATAL without the mark.
    return FATAL if error.fatal() else verdict_of(error.code())
