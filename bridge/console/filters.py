"""What a list of messages is narrowed down to, in a URL that can be shared (pure)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from bridge.inspection import MAX_ID
from bridge.lifecycle import Status
from bridge.operations import Selection

if TYPE_CHECKING:
    from collections.abc import Mapping

_TRACE_ID = re.compile(r"[0-9a-fA-F]{32}")
_SPAN = re.compile(r"(\d{1,5})\s*(m|min|h|d)")
_SPANS = {"m": "minutes", "min": "minutes", "h": "hours", "d": "days"}
_LONGEST = 300
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a page goes on: below this id; in a list by type, below this time and id."""

    outbox_id: int
    created_at: datetime | None = None

    def __str__(self) -> str:
        if self.created_at is None:
            return str(self.outbox_id)
        return f"{self.outbox_id}.{(self.created_at - _EPOCH) // timedelta(microseconds=1)}"

    @classmethod
    def parse(cls, text: str) -> Cursor | None:
        """Read a cursor of a URL; None for what is none."""
        number, _, micros = text.partition(".")
        if not number.isdecimal() or int(number) > MAX_ID or (micros and not micros.isdecimal()):
            return None
        try:
            at = _EPOCH + timedelta(microseconds=int(micros)) if micros else None
        except OverflowError:
            return None
        return cls(int(number), at)


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """All fields that are given must match. `key` may hold `*` and `?`; times are half-open.

    `problems` says of fields that could not be read what is wrong; they count as not given.
    """

    statuses: tuple[Status, ...] = ()
    destination: str | None = None
    event_type: str | None = None
    key: str | None = None
    ordering_key: str | None = None
    error_code: str | None = None
    trace_id: str | None = None
    created_from: datetime | None = None
    created_to: datetime | None = None
    before: Cursor | None = None
    problems: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def parse(cls, given: Mapping[str, str], statuses: list[str], now: datetime) -> MessageFilter:
        """Read a URL's parameters. `from` and `to` may be spans back from `now`, such as `15m`."""
        problems: list[str] = []

        def text(name: str) -> str | None:
            value = given.get(name, "").strip()
            if "\0" in value or len(value) > _LONGEST:
                problems.append(f"{name}: no text of up to {_LONGEST} characters")
                return None
            return value or None

        def moment(name: str) -> datetime | None:
            value = text(name)
            if value is None:
                return None
            if span := _SPAN.fullmatch(value):
                return now - timedelta(**{_SPANS[span[2]]: int(span[1])})
            try:
                at = datetime.fromisoformat(value)
            except ValueError:
                problems.append(
                    f"{name}: {value!r} is no time; write 2026-03-01T14:30 (UTC), or 15m, 2h, 1d"
                )
                return None
            return at if at.tzinfo is not None else at.replace(tzinfo=UTC)

        known = {status.value: status for status in Status}
        chosen = [known[one] for one in dict.fromkeys(statuses) if one in known]
        problems.extend(
            f"status: {one!r} is none of {', '.join(known)}"
            for one in statuses
            if one and one not in known
        )
        trace_id = text("trace")
        if trace_id is not None and not _TRACE_ID.fullmatch(trace_id):
            problems.append(f"trace: {trace_id!r} is no trace id of 32 hexadecimal digits")
            trace_id = None
        before = text("before")
        return cls(
            statuses=tuple(chosen),
            destination=text("destination"),
            event_type=text("type"),
            key=text("key"),
            ordering_key=text("ordering_key"),
            error_code=text("error"),
            trace_id=trace_id.lower() if trace_id else None,
            created_from=moment("from"),
            created_to=moment("to"),
            before=Cursor.parse(before) if before else None,
            problems=tuple(problems),
        )

    @property
    def is_empty(self) -> bool:
        """Tell whether every message matches."""
        return replace(self, before=None) == MessageFilter()

    @property
    def is_exact_key(self) -> bool:
        """Tell whether one message key is asked for."""
        return self.key is not None and not any(c in self.key for c in "*?[")

    @property
    def like_key(self) -> str | None:
        """The key's pattern in SQL's terms; None where there is none."""
        if self.key is None or self.is_exact_key:
            return None
        escaped = re.sub(r"([\\%_])", r"\\\1", self.key)
        return escaped.replace("*", "%").replace("?", "_")

    def parameters(self) -> dict[str, str | list[str]]:
        """Return the URL's parameters, without the cursor."""
        times = {"from": self.created_from, "to": self.created_to}
        texts: dict[str, str | list[str] | None] = {
            "status": [status.value for status in self.statuses],
            "destination": self.destination,
            "type": self.event_type,
            "key": self.key,
            "ordering_key": self.ordering_key,
            "error": self.error_code,
            "trace": self.trace_id,
            **{
                name: at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if at else None
                for name, at in times.items()
            },
        }
        return {name: value for name, value in texts.items() if value}

    def query(self, **changes: Any) -> str:
        """Return the query string of this filter, changed in some of the URL's parameters."""
        parameters: dict[str, Any] = {**self.parameters(), **changes}
        return urlencode({n: v for n, v in parameters.items() if v}, doseq=True)

    def selection(self) -> Selection:
        """Return the same rows as an action's selection; the cursor has no part in it."""
        return Selection(
            statuses=self.statuses,
            destination=self.destination,
            event_type=self.event_type,
            key_pattern=self.key,
            ordering_key=self.ordering_key,
            error_code=self.error_code,
            created_from=self.created_from,
            created_to=self.created_to,
            trace_id=self.trace_id,
        )
