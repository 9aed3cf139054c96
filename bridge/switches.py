"""Run-time switches: pause, rate limit, rows per claim and quiet hours, set by operators.

They stand in `app_outbox_control`, one row for each destination that has any and one, `*`, for all.
A trigger of that table writes the audit rows, so that plain SQL is audited as well.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime  # noqa: TC003 - a field's type, read by tools at run time
from typing import TYPE_CHECKING, Any

from psycopg.rows import class_row, dict_row, tuple_row

from bridge.database.statements import load
from bridge.errors import InvalidSwitchError
from bridge.reason import checked_reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

ALL = "*"
"""Stands for all destinations."""

MAX_ROWS = 2**31 - 1
_MAX_DESTINATION = 200
_WINDOW = re.compile(
    r"(?P<starts>(?:[01]\d|2[0-3]):[0-5]\d)\s*-\s*(?P<ends>(?:[01]\d|2[0-3]):[0-5]\d)\s+(?P<zone>\S+)",
    re.ASCII,
)

Value = bool | int | str | None


@dataclass(frozen=True, slots=True)
class SwitchView:
    """One switch that is set.

    `switch` is its column: paused, rows_per_second, batch_rows or quiet_hours. `effective`: quiet
    hours are in force only within their window; None where the stored window cannot be read.
    """

    destination: str
    switch: str
    setting: str
    effective: bool | None
    changed_by: str
    changed_at: datetime
    reason: str | None

    @property
    def is_stop_of_all(self) -> bool:
        """Tell whether it is the pause of all destinations."""
        return self.destination == ALL and self.switch == "paused"


@dataclass(frozen=True, slots=True)
class Change:
    """What an action did. `changed` is False where the switch stood so already."""

    destination: str
    switch: str
    changed: bool
    before: Value
    after: Value


def pause(
    conn: psycopg.Connection[Any],
    destination: str | None = None,
    *,
    reason: str,
    actor: str,
    schema: str = "public",
    source: str = "cli",
) -> Change:
    """Stop sending to one destination, or (None) to all; rows stay PENDING.

    What is already claimed is still sent. Like every action here it commits on its own, or takes
    part in the caller's transaction where one is open; relays see it within a second of the commit.
    Raises InvalidSwitchError for an unusable argument, and psycopg's errors.
    """
    action = _action(conn, destination, reason=reason, actor=actor, schema=schema, source=source)
    return action.set("paused", value=True)


def resume(
    conn: psycopg.Connection[Any],
    destination: str | None = None,
    *,
    reason: str,
    actor: str,
    schema: str = "public",
    source: str = "cli",
) -> Change:
    """Take a pause back; see `pause`. That of all destinations and of a single one are two."""
    action = _action(conn, destination, reason=reason, actor=actor, schema=schema, source=source)
    return action.set("paused", value=False)


def limit(
    conn: psycopg.Connection[Any],
    destination: str | None = None,
    *,
    rows_per_second: int | None,
    reason: str,
    actor: str,
    schema: str = "public",
    source: str = "cli",
) -> Change:
    """Limit the rows a second of one destination over all relays; None takes the limit off.

    The limit for all destinations (destination None) is one that they share. Else as `pause`.
    """
    _check_rows("rows_per_second", rows_per_second)
    action = _action(conn, destination, reason=reason, actor=actor, schema=schema, source=source)
    return action.set("rows_per_second", rows_per_second)


def batch(
    conn: psycopg.Connection[Any],
    destination: str | None = None,
    *,
    rows: int | None,
    reason: str,
    actor: str,
    schema: str = "public",
    source: str = "cli",
) -> Change:
    """Limit the rows of a destination in one claim; None leaves it to the relay's settings.

    Else as `pause`.
    """
    _check_rows("rows", rows)
    action = _action(conn, destination, reason=reason, actor=actor, schema=schema, source=source)
    return action.set("batch_rows", rows)


def quiet(
    conn: psycopg.Connection[Any],
    destination: str | None = None,
    *,
    window: str | None,
    reason: str,
    actor: str,
    schema: str = "public",
    source: str = "cli",
) -> Change:
    """Send nothing within a daily window, such as `23:00-06:00 Asia/Tokyo`; None: no window.

    The time zone is one of the server's (`pg_timezone_names`) and follows its summer time. Else as
    `pause`.
    """
    action = _action(conn, destination, reason=reason, actor=actor, schema=schema, source=source)
    return action.set("quiet_hours", None if window is None else _window(conn, window, schema))


def list_switches(conn: psycopg.Connection[Any], schema: str = "public") -> list[SwitchView]:
    """List the switches that are set, those for all destinations first. Raises psycopg's errors."""
    with conn.cursor(row_factory=class_row(SwitchView)) as cursor:
        return cursor.execute(load("list_switches", schema)).fetchall()


@dataclass(frozen=True, slots=True)
class _Action:
    """One change of one switch."""

    conn: psycopg.Connection[Any]
    destination: str
    reason: str
    actor: str
    schema: str
    source: str

    def set(self, switch: str, value: Value) -> Change:
        values: dict[str, Value] = {
            "paused": False,
            "rows_per_second": None,
            "batch_rows": None,
            "quiet_hours": None,
        }
        neutral = values[switch]
        destination = {"destination": self.destination}
        with self._transaction() as cursor:
            found = cursor.execute(load("lock_switches", self.schema), destination).fetchone()
            before = found[switch] if found else neutral
            done = cursor.execute(
                load("set_switch", self.schema),
                {**values, switch: value, **destination, "switch": switch, "reason": self.reason},
            ).fetchone()
        return Change(self.destination, switch, done is not None, before, value)

    @contextmanager
    def _transaction(self) -> Iterator[psycopg.Cursor[dict[str, Any]]]:
        with self.conn.transaction(), self.conn.cursor(row_factory=dict_row) as cursor:
            names = {"actor": self.actor, "source": self.source}
            cursor.execute(load("name_actor", self.schema), names)
            yield cursor


def _action(
    conn: psycopg.Connection[Any],
    destination: str | None,
    *,
    reason: str,
    actor: str,
    schema: str,
    source: str,
) -> _Action:
    """Check what all actions are given."""
    return _Action(
        conn,
        _checked_destination(destination),
        checked_reason(reason, InvalidSwitchError),
        actor,
        schema,
        source,
    )


def _checked_destination(destination: str | None) -> str:
    if destination is None:
        return ALL
    if not destination or "\0" in destination:
        raise InvalidSwitchError(
            "destination is empty or no text; name one, or leave it out to mean all destinations"
        )
    if len(destination) > _MAX_DESTINATION:
        raise InvalidSwitchError(
            f"destination has {len(destination)} characters, at most {_MAX_DESTINATION} are "
            "possible; no row can have such a destination"
        )
    return destination


def _check_rows(name: str, rows: int | None) -> None:
    if rows is not None and not 0 < rows <= MAX_ROWS:
        raise InvalidSwitchError(
            f"{name} is {rows}; give a number from 1 to {MAX_ROWS}, or take the switch off. "
            "To send nothing at all, pause"
        )


def _window(conn: psycopg.Connection[Any], window: str, schema: str) -> str:
    """Return the window as it is stored, its time zone under the name that the server gives it."""
    match = _WINDOW.fullmatch(window.strip())
    if match is None:
        raise InvalidSwitchError(
            f"quiet hours {window!r} are no daily window; write it as 23:00-06:00 Asia/Tokyo: "
            "from, to (24 hours, with minutes) and a time zone"
        )
    if match["starts"] == match["ends"]:
        raise InvalidSwitchError(
            f"quiet hours {window!r} begin when they end; to send nothing at all, pause"
        )
    with conn.cursor(row_factory=tuple_row) as cursor:
        zone = {"time_zone": match["zone"]}
        found = cursor.execute(load("find_time_zone", schema), zone).fetchone()
    if found is None:
        raise InvalidSwitchError(
            f"the server knows no time zone {match['zone']!r}; take a name such as Europe/Berlin "
            "or UTC (the view pg_timezone_names lists them)"
        )
    return f"{match['starts']}-{match['ends']} {found[0]}"
