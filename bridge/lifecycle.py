"""States of an outbox row and the only transitions between them (pure).

The same table stands in the SQL (each statement that changes `status` names the states it starts
from) and in `docs/lifecycle.md`; a test holds the three together.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """What `app_outbox.status` may hold."""

    PENDING = "PENDING"
    """Waiting to be sent, not before `next_run_at`."""
    PROCESSING = "PROCESSING"
    """Claimed by a relay, which may have handed it to Kafka."""
    SENT = "SENT"
    """Acknowledged by the broker with acks=all."""
    FAILED = "FAILED"
    """Refused, or out of attempts; only an operator moves it on."""
    CANCELLED = "CANCELLED"
    """Withdrawn by an operator; never sent."""


class ErrorCode(StrEnum):
    """Values of `last_error_code` that are ours; every other value is librdkafka's error name."""

    STUCK_PROCESSING = "STUCK_PROCESSING"
    """The claim of a dead, frozen or hung relay was taken back."""
    INVALID_TOPIC = "INVALID_TOPIC"
    """The destination maps to a name that no Kafka topic can have."""
    MESSAGE_TOO_LARGE = "MESSAGE_TOO_LARGE"
    """The record alone is larger than the producer or the topic accepts."""
    UNKNOWN_TOPIC = "UNKNOWN_TOPIC"
    """The topic does not exist and `missing_topic = "fail"` says not to wait for it."""
    NO_LEADER = "NO_LEADER"
    """The record's partition has no leader; the row waits, uncharged."""
    CANNOT_ENCODE = "CANNOT_ENCODE"
    """The row cannot be turned into a Kafka record (a header that is not a string …)."""

    POISON = "POISON"
    """Relay after relay died while it had this row alone."""


RESCUED_MESSAGE = "Recovered from PROCESSING timeout"
"""`last_error_msg` of a row whose claim was taken back."""


@dataclass(frozen=True, slots=True)
class Transition:
    """One allowed change of `status`.

    `claim` says what happens to `claim_id`, the fencing token: `fresh` (a new one), `none`
    (cleared) or `kept`. `charged` tells whether `retry_count` grows. `audited` transitions are
    operator actions that need a reason.
    """

    source: Status | None
    target: Status
    name: str
    claim: str = "kept"
    charged: bool = False
    audited: bool = False


TRANSITIONS: tuple[Transition, ...] = (
    Transition(None, Status.PENDING, "enqueue", claim="none"),
    Transition(Status.PENDING, Status.PROCESSING, "claim", claim="fresh"),
    Transition(Status.PROCESSING, Status.SENT, "ack"),
    Transition(Status.PENDING, Status.SENT, "late ack"),
    Transition(Status.PROCESSING, Status.PENDING, "transient error", charged=True),
    Transition(Status.PROCESSING, Status.FAILED, "refused", charged=True),
    Transition(Status.PROCESSING, Status.PENDING, "release", claim="none"),
    Transition(Status.PROCESSING, Status.PENDING, "rescue"),
    Transition(Status.PROCESSING, Status.FAILED, "poison"),
    Transition(Status.SENT, Status.PENDING, "replay", claim="none", audited=True),
    Transition(Status.PENDING, Status.CANCELLED, "cancel", claim="none", audited=True),
    Transition(Status.FAILED, Status.CANCELLED, "cancel", claim="none", audited=True),
    Transition(Status.FAILED, Status.PENDING, "retry failed", claim="none", audited=True),
)


def is_allowed(source: Status | None, target: Status) -> bool:
    """Tell whether any transition leads from `source` (None: no row yet) to `target`."""
    return any(t.source is source and t.target is target for t in TRANSITIONS)


def exposure(status: str, claim_count: int) -> str:
    """Say in words whether a row's record may have reached Kafka."""
    if status == Status.SENT:
        return "was sent"
    return "never handed to Kafka" if claim_count == 0 else "may have been sent"
