"""What a delivery error says about the message: error code to class."""

from __future__ import annotations

from enum import StrEnum

from confluent_kafka import KafkaError


class FailureClass(StrEnum):
    """How far a failure reaches."""

    MESSAGE = "message"
    """The record itself is refused; sending it again as it is cannot help."""
    DELIVERY = "delivery"
    """Anything else: the same record may well go through later."""
    FATAL = "fatal"
    """The producer is unusable; a new one is needed."""


# A refused record takes its whole librdkafka batch with it, so a code of this class counts only
# against a record that was alone in its batch; the publisher sends the others again, one by one.
MESSAGE_CODES = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_RECORD,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.TOPIC_EXCEPTION,
        # librdkafka's local codes have a leading underscore.
        KafkaError._INVALID_ARG,  # noqa: SLF001 - see above
        KafkaError._BAD_MSG,  # noqa: SLF001 - see above
    }
)


def classify(error: KafkaError) -> FailureClass:
    """Return the class of a delivery error; an unknown code is of class delivery."""
    # What is produced after a fatal error carries the code without the mark.
    if error.fatal() or error.code() == KafkaError._FATAL:  # noqa: SLF001 - see above
        return FailureClass.FATAL
    if error.code() in MESSAGE_CODES:
        return FailureClass.MESSAGE
    return FailureClass.DELIVERY
