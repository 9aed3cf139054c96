"""What to know before FAILED rows of an error code are sent again (pure)."""

from __future__ import annotations

from bridge.kafka.failure_table import VERDICTS, FailureClass

_BY_CODE = {
    "MESSAGE_TOO_LARGE": "The record is larger than the topic takes. Raise the topic's "
    "max.message.bytes, or edit the row; then retry.",
    "UNKNOWN_TOPIC": "The topic does not exist. Create it, or route the destination "
    "elsewhere; then retry.",
    "UNKNOWN_TOPIC_OR_PART": "The topic does not exist. Create it, or route the destination "
    "elsewhere; then retry.",
    "TOPIC_AUTHORIZATION_FAILED": "The relay may not write to the topic. Grant it the right; then "
    "retry.",
    "POISON": "Relays died again and again while they had the row. Find out why from their logs "
    "before a retry.",
}
_BY_CLASS = {
    FailureClass.MESSAGE: "The record itself is refused: a retry as it is cannot help. Edit "
    "the row or change the topic first, or cancel.",
    FailureClass.DESTINATION: "The destination refused for so long that the attempts were used up. "
    "Once it is mended, retry.",
    FailureClass.BROKER: "The cluster refused. Once it is mended, retry.",
    FailureClass.FATAL: "The producer failed. It has been replaced since: retry.",
}
_UNKNOWN = "Look at the error of an example first; retry once its cause is gone."


def advice_for(error_code: str | None) -> str:
    """Return a sentence or two on a code that `last_error_code` may hold."""
    if error_code in _BY_CODE:
        return _BY_CODE[error_code]
    verdict = VERDICTS.get(error_code or "")
    return _UNKNOWN if verdict is None else _BY_CLASS[verdict.failure_class]
