"""What happened to one message, from enqueue to offset, in the order of time (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from bridge.lifecycle import Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.inspection import AuditEntry, StoredMessage


@dataclass(frozen=True, slots=True)
class Place:
    """What the side tables know of a row; see `read_standing.sql`."""

    failed_at: datetime | None
    claimed_by: str | None
    holds_since: datetime | None
    behind: int | None
    deaths: int | None


@dataclass(frozen=True, slots=True)
class Step:
    """One step. `kind` is a status in lower case, or `act`, `error`, `wait`; `detail` says more."""

    at: datetime | None
    kind: str
    title: str
    detail: str = ""


def timeline(
    message: StoredMessage, audit: Sequence[AuditEntry], place: Place, now: datetime
) -> list[Step]:
    """List the steps that are known, the oldest first; one without a time stands at the end.

    A row keeps its latest attempt alone, so earlier ones show as a count.
    """
    steps = [Step(message.created_at, "pending", "Enqueued", "start of the business transaction")]
    steps.extend(
        Step(
            entry.changed_at,
            "act",
            f"{entry.action_name} by {entry.changed_by}",
            f"{entry.reason} (by {entry.source})",
        )
        for entry in audit
    )
    steps.extend(_attempts(message, place))
    if place.holds_since is not None:
        steps.append(
            Step(place.holds_since, "wait", "Holds up its ordering key", message.ordering_key or "")
        )
    steps.sort(key=lambda step: step.at or now)
    steps.extend(_to_come(message, place, now))
    return steps


def _attempts(message: StoredMessage, place: Place) -> list[Step]:
    steps: list[Step] = []
    error = f"{message.last_error_code}: {message.last_error_msg or ''}".rstrip(": ")
    if message.status == Status.PROCESSING and message.locked_at is not None:
        by = place.claimed_by or message.locked_by or "a relay"
        steps.append(Step(message.locked_at, "processing", f"Claimed by {by}", _hand_offs(message)))
    if message.status == Status.SENT:
        steps.append(Step(message.sent_at, "sent", "Acknowledged by Kafka", _where(message)))
        return steps
    if message.status == Status.FAILED:
        at = place.failed_at or message.updated_at
        steps.append(Step(at, "failed", "FAILED", error or "no error is recorded"))
    elif message.status == Status.CANCELLED:
        steps.append(Step(message.updated_at, "cancelled", "CANCELLED"))
    elif message.last_error_code:
        steps.append(Step(message.updated_at, "error", "An attempt failed", error))
    return steps


def _to_come(message: StoredMessage, place: Place, now: datetime) -> list[Step]:
    if message.status != Status.PENDING:
        return []
    if place.behind is not None:
        return [Step(None, "wait", f"Waits behind row {place.behind}, which holds their key")]
    try:
        due = datetime.fromisoformat(message.next_run_at)
    except ValueError:
        return [Step(None, "wait", "Never due", "next_run_at is infinite")]
    if due.astimezone(UTC) > now:
        return [Step(due, "wait", "Due", "not before this time")]
    return [Step(None, "wait", "Due now", "a relay takes it with its next claim")]


def _where(message: StoredMessage) -> str:
    landed = message.landed
    if landed is None:
        return "the place is not known"
    offset = "unknown" if landed["offset"] is None else landed["offset"]
    return f"topic {landed['topic']}, partition {landed['partition']}, offset {offset}"


def _hand_offs(message: StoredMessage) -> str:
    number = message.claim_count
    return f"hand-off {number} to Kafka" if number else "first hand-off to Kafka"
