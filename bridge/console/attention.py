"""What somebody on call should look at first, worst first (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from bridge.console.wording import age, capped, count
from bridge.lifecycle import Status
from bridge.monitor import RelayState

if TYPE_CHECKING:
    from bridge.console.overview import Overview

_OLD_SECONDS = 60.0
"""A due row that waits longer while relays live is worth a look."""


class Level(StrEnum):
    """How bad it is."""

    BAD = "bad"
    WARN = "warn"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Point:
    """One thing to look at: a sentence, and the page that says more (a path and a query)."""

    level: Level
    text: str
    path: str
    link: str


def points(overview: Overview) -> list[Point]:
    """List what is out of the ordinary; nothing where all is well."""
    found = [*_relays(overview), *_failures(overview), *_switches(overview), *_age(overview)]
    if overview.held_rows:
        held = capped(overview.held_rows)
        words = "row holds up its key" if overview.held_rows == 1 else "rows hold up their keys"
        found.append(Point(Level.WARN, f"{held} {words}", "/keys", "Held keys"))
    order = list(Level)
    return sorted(found, key=lambda point: order.index(point.level))


def _rows(number: int) -> str:
    return "row" if number == 1 else "rows"


def _relays(overview: Overview) -> list[Point]:
    relays = overview.backlog.relays
    alive = [r for r in relays if r.state in (RelayState.LIVING, RelayState.STOPPING)]
    found: list[Point] = []
    if not alive:
        level = Level.BAD if overview.waiting else Level.WARN
        found.append(Point(level, "No relay is alive: nothing is sent", "/relays", "Relays"))
    for relay in relays:
        if relay.state in (RelayState.FROZEN, RelayState.DEAD):
            level = Level.WARN if alive else Level.BAD
            found.append(
                Point(
                    level,
                    f"Relay {relay.relay_name} is {relay.state}, silent for "
                    f"{age(relay.silent_seconds)}",
                    "/relays",
                    "Relays",
                )
            )
    refusing = {name: why for relay in alive for name, why in relay.failing.items()}
    found.extend(
        Point(
            Level.BAD,
            f"{name} does not take records: {why}; its rows wait uncharged, others go on",
            "/destinations",
            "Destinations",
        )
        for name, why in sorted(refusing.items())
    )
    return found


def _failures(overview: Overview) -> list[Point]:
    failed = overview.backlog.counts[Status.FAILED]
    if not failed:
        return []
    groups = len(overview.backlog.failures)
    by = f" for {groups} different reasons" if groups > 1 else ""
    waits = "waits" if failed == 1 else "wait"
    text = f"{count(failed)} {_rows(failed)} FAILED{by} and {waits} for a decision"
    return [Point(Level.BAD, text, "/failures", "Failures")]


def _switches(overview: Overview) -> list[Point]:
    found: list[Point] = []
    for switch in overview.backlog.switches:
        if switch.effective is False or switch.switch == "batch_rows":
            continue
        where = "All destinations are" if switch.destination == "*" else f"{switch.destination} is"
        what = {
            "paused": "paused",
            "rows_per_second": f"limited to {switch.setting} rows a second",
            "quiet_hours": f"within its quiet hours ({switch.setting})",
        }[switch.switch]
        stops = switch.switch == "paused"
        level = Level.BAD if stops and switch.destination == "*" else Level.WARN
        reason = f": {switch.reason}" if switch.reason else ""
        found.append(
            Point(
                level if stops else Level.NOTE,
                f"{where} {what} by {switch.changed_by}{reason}",
                "/destinations",
                "Destinations",
            )
        )
    return found


def _age(overview: Overview) -> list[Point]:
    oldest = overview.backlog.oldest_unsent_seconds
    if oldest is None or oldest < _OLD_SECONDS:
        return []
    return [
        Point(
            Level.WARN,
            f"The longest waiting row could have gone out {age(oldest)} ago",
            "/messages?status=PENDING",
            "Waiting rows",
        )
    ]
