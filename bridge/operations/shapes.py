"""What actions are told and what they answer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003 - fields' types, read by tools at run time
from enum import StrEnum
from typing import NamedTuple

from bridge.errors import InvalidOperationError
from bridge.inspection import MAX_ID
from bridge.lifecycle import Status, exposure

MAX_NAME = 128
"""Characters that the audit keeps of an actor and of a request id."""


class Action(StrEnum):
    """What may be done to rows; the value is the audit's `action_name`."""

    RETRY = "retry"
    CANCEL = "cancel"
    SEND_NOW = "send now"
    RELEASE = "release"
    REPLAY = "replay"
    SKIP = "skip"
    EDIT = "edit"

    @property
    def command(self) -> str:
        """Its name on the command line."""
        return self.value.replace(" ", "-")


STARTS: dict[Action, tuple[Status, ...]] = {
    Action.RETRY: (Status.FAILED,),
    Action.CANCEL: (Status.PENDING, Status.FAILED),
    Action.SEND_NOW: (Status.PENDING,),
    Action.RELEASE: (Status.PROCESSING,),
    Action.REPLAY: (Status.SENT,),
    Action.SKIP: (Status.PENDING, Status.FAILED),
    Action.EDIT: (Status.PENDING, Status.FAILED),
}
"""The states from which each action starts; the SQL function says the same, a test compares."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows that an action is about: by `ids`, or by filters that must all match.

    `key_pattern` is a shell-style pattern (`order-17*`) for message keys, `ordering_key` one exact
    ordering key, `created_from` and `created_to` a half-open window (aware datetimes), `trace_id`
    the 32 hexadecimal digits of the `traceparent` header.
    """

    ids: tuple[int, ...] = ()
    statuses: tuple[Status, ...] = ()
    destination: str | None = None
    event_type: str | None = None
    key_pattern: str | None = None
    ordering_key: str | None = None
    error_code: str | None = None
    created_from: datetime | None = None
    created_to: datetime | None = None
    trace_id: str | None = None

    @property
    def is_by_id(self) -> bool:
        """Whether it names rows; only then are all of them told apart in the answer."""
        return bool(self.ids)

    @property
    def has_filter(self) -> bool:
        """Whether any filter is given."""
        return bool(self.statuses) or any(value is not None for value in self._filters())

    def _filters(self) -> tuple[object, ...]:
        return (
            self.destination,
            self.event_type,
            self.key_pattern,
            self.ordering_key,
            self.error_code,
            self.created_from,
            self.created_to,
            self.trace_id,
        )

    def check(self, action: Action) -> None:
        """Raise InvalidOperationError where it names nothing, two things, or an impossible one."""
        if self.ids and self.has_filter:
            raise InvalidOperationError("name rows by id or give filters, not both")
        if not self.ids and not self.has_filter:
            raise InvalidOperationError(
                f"no rows are named: give ids, or a filter (a status alone means all rows of that "
                f"status, here {' or '.join(STARTS[action])})"
            )
        for outbox_id in self.ids:
            if not 0 < outbox_id <= MAX_ID:
                raise InvalidOperationError(f"{outbox_id} is no outbox_id")
        wrong = [status for status in self.statuses if status not in STARTS[action]]
        if wrong:
            raise InvalidOperationError(
                f"{action} starts from {' or '.join(STARTS[action])} rows, not from {wrong[0]}"
            )
        for name, moment in (("from", self.created_from), ("to", self.created_to)):
            if moment is not None and moment.utcoffset() is None:
                raise InvalidOperationError(f"the time window's {name} has no time zone; add one")
        for value in self._filters():
            if isinstance(value, str) and (not value or "\0" in value):
                raise InvalidOperationError("a filter is empty or no text; leave it out instead")
        if self.trace_id is not None and not _is_trace_id(self.trace_id):
            raise InvalidOperationError(
                f"{self.trace_id!r} is no trace id; it has 32 hexadecimal digits"
            )


def _is_trace_id(text: str) -> bool:
    return len(text) == 32 and all(c in "0123456789abcdefABCDEF" for c in text)  # noqa: PLR2004 - W3C


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts: `name` as the audit shows it (user and host, a login), by what means (`cli` …).

    `request_id` ties the entries of one command together. The database user is written by the
    database itself, whatever the name says.
    """

    name: str
    source: str
    request_id: str | None = None


class Refusal(NamedTuple):
    """A row that an action did not change, and why."""

    outbox_id: int
    why: str


@dataclass(frozen=True, slots=True)
class TargetRow:
    """One row that an action would change."""

    outbox_id: int
    status: str
    destination: str
    event_type: str
    message_key: str
    ordering_key: str | None
    created_at: datetime
    claim_count: int
    last_error_code: str | None

    @property
    def exposure(self) -> str:
        """Whether the record may be in Kafka; see `exposure`."""
        return exposure(self.status, self.claim_count)


@dataclass(frozen=True, slots=True)
class ChangedRow:
    """One row that an action changed: its status before and after.

    `claim_count` says how often it had been handed to Kafka before.
    """

    outbox_id: int
    before: str
    after: str
    claim_count: int

    @property
    def exposure(self) -> str:
        """Whether the record may be in Kafka; see `exposure`."""
        return exposure(self.before, self.claim_count)


@dataclass(frozen=True, slots=True)
class Preview:
    """What an action would change; nothing was changed.

    `matched` is exact up to `PREVIEW_LIMIT`, beyond it `is_capped` and all counts are lower bounds.
    `never_sent` of them were never handed to Kafka, `maybe_sent` may have been sent (or were).
    `refused` is filled for rows named by id. `examples` are the first rows by id.
    """

    action: Action
    matched: int
    is_capped: bool
    never_sent: int
    maybe_sent: int
    by_destination: tuple[tuple[str, int], ...]
    examples: tuple[TargetRow, ...]
    refused: tuple[Refusal, ...]


PREVIEW_LIMIT = 10_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an action did, or so far.

    `matched` rows were looked at, `changed` were changed: `never_sent` of these had never been
    handed to Kafka, `maybe_sent` may have been sent before (or were). `refused` names the first
    `KEPT_ROWS` of `refused_count` rows that were left as they are, `rows` the first changed ones.
    """

    action: Action
    matched: int = 0
    changed: int = 0
    never_sent: int = 0
    maybe_sent: int = 0
    refused_count: int = 0
    refused: tuple[Refusal, ...] = ()
    rows: tuple[ChangedRow, ...] = ()
    request_id: str | None = None
    replay_id: str | None = None


KEPT_ROWS = 1000


class Unset(StrEnum):
    """Stands for: leave it as it is."""

    UNSET = "unset"


@dataclass(frozen=True, slots=True)
class Edit:
    """New content of an unsent row; what is left out stays.

    `headers` are set one by one, `drop_headers` taken away. `payload` is what `bridge.enqueue`
    takes: dict, list, JSON text, bytes with `content_type`, or None for a tombstone.
    """

    destination: str | None = None
    headers: dict[str, str] | None = None
    drop_headers: tuple[str, ...] = ()
    payload: object = Unset.UNSET
    content_type: str | None = None
