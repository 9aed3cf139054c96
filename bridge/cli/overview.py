"""What `outbox-bridge top` shows of two moments (pure)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from bridge.cli.output import Cell, age, moment
from bridge.cli.switch_table import SWITCH_NAMES
from bridge.lifecycle import Status
from bridge.monitor import RelayState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.held_keys import HeldKey
    from bridge.monitor import Backlog, DestinationBacklog, Minute, RelayView

_BARS = "▁▂▃▄▅▆▇█"
_GRAPH_MINUTES = 30
_BAD, _CARE = "bold red", "yellow"
_LATE = 60.0
"""Seconds of waiting from which on a destination stands out."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Everything of one moment. `sent`: rows that became SENT, by minute and destination."""

    backlog: Backlog
    minutes: Sequence[Minute]
    sent: dict[tuple[datetime, str], int]
    held: Sequence[HeldKey]
    held_count: int


@dataclass(frozen=True, slots=True)
class Section:
    """One table; `styles` has rich's style of each row. `more` counts the rows left out."""

    title: str
    columns: Sequence[str]
    rows: list[list[Cell]]
    styles: list[str]
    more: int = 0


@dataclass(frozen=True, slots=True)
class Rates:
    """Rows a second between two moments, by destination: that came in, and that became SENT."""

    came: dict[str, float] = field(default_factory=dict)
    sent: dict[str, float] = field(default_factory=dict)


def rates(now: Sample, before: Sample | None) -> Rates:
    """Compare two moments; of the first one there is the last full minute only."""
    names = now.backlog.destinations
    if before is None:
        last = now.backlog.taken_at.replace(second=0, microsecond=0) - timedelta(minutes=1)
        return Rates(sent={name: now.sent.get((last, name), 0) / 60 for name in names})
    seconds = (now.backlog.taken_at - before.backlog.taken_at).total_seconds()
    if seconds <= 0:
        return Rates()
    sent = dict.fromkeys(names, 0.0)
    for (minute, name), rows in now.sent.items():
        if name in sent:
            sent[name] += max(0, rows - before.sent.get((minute, name), 0)) / seconds
    came = {}
    for name, one in names.items():
        was = before.backlog.destinations.get(name)
        grown = _open(one) - (_open(was) if was is not None else 0)
        came[name] = max(0.0, grown / seconds + sent[name])
    return Rates(came, sent)


def _open(one: DestinationBacklog) -> int:
    return sum(rows for status, rows in one.counts.items() if status is not Status.SENT)


def headline(sample: Sample, speed: Rates) -> list[str]:
    """Return the totals in two lines."""
    backlog = sample.backlog
    counts = "   ".join(f"{status.value} {rows:,}" for status, rows in backlog.counts.items())
    oldest = age(backlog.oldest_unsent_seconds)
    wait = f"the oldest has been waiting for {oldest}" if oldest else "nothing waits"
    came = f"{sum(speed.came.values()):,.0f} rows/s in, " if speed.came else ""
    sent = f"{sum(speed.sent.values()):,.0f} rows/s sent"
    return [
        counts,
        f"due {backlog.due:,}, later {backlog.later:,}; {wait}; {came}{sent}",
        f"sent a minute, {_GRAPH_MINUTES} min: {_graph(sample.minutes)}",
    ]


def _graph(minutes: Sequence[Minute]) -> str:
    shown = [one.sent for one in minutes[-_GRAPH_MINUTES:]]
    highest = max(shown, default=0)
    if not highest:
        return "none"
    bars = "".join(_BARS[-(-rows * (len(_BARS) - 1) // highest)] for rows in shown)
    return f"{bars} {highest:,} at most"


def sections(sample: Sample, speed: Rates, room: int | None = None) -> list[Section]:
    """Return the tables, worst rows first; `room` is how many rows there may be in all."""
    made = [
        _destinations(sample, speed),
        _errors(sample),
        _held(sample),
        _relays(sample.backlog.relays),
    ]
    return [one for one in (_fitted(made, room) if room is not None else made) if one.rows]


def _fitted(made: list[Section], room: int) -> list[Section]:
    """Share the rows in turn: what one table does not need goes to the others."""
    left = max(room, len(made))
    given = dict.fromkeys(range(len(made)), 0)
    while left > 0:
        hungry = [n for n, one in enumerate(made) if given[n] < len(one.rows)]
        if not hungry:
            break
        for number in hungry[:left]:
            given[number] += 1
            left -= 1
    return [
        Section(
            one.title,
            one.columns,
            one.rows[: given[number]],
            one.styles[: given[number]],
            one.more + len(one.rows) - given[number],
        )
        for number, one in enumerate(made)
    ]


def _destinations(sample: Sample, speed: Rates) -> Section:
    backlog = sample.backlog
    ranked: list[tuple[tuple[bool, float, str], str, list[Cell]]] = []
    for name, one in backlog.destinations.items():
        failing = sorted(
            {
                relay.failing[name]
                for relay in backlog.relays
                if relay.is_there and name in relay.failing
            }
        )
        held_back = [
            SWITCH_NAMES[switch.switch]
            if switch.switch == "paused"
            else f"{SWITCH_NAMES[switch.switch]} {switch.setting}"
            for switch in backlog.switches
            if switch.destination in {name, "*"} and switch.effective
        ]
        late = (one.oldest_unsent_seconds or 0.0) > _LATE
        style = _BAD if failing else _CARE if late or held_back or one.counts[Status.FAILED] else ""
        ranked.append(
            (
                (not failing, -(one.oldest_unsent_seconds or 0.0), name),
                style,
                [
                    name,
                    one.due,
                    one.later,
                    one.counts[Status.PROCESSING],
                    one.counts[Status.FAILED],
                    age(one.oldest_unsent_seconds),
                    _rate(speed.came.get(name)),
                    _rate(speed.sent.get(name)),
                    "; ".join([*(f"breaker open: {why}" for why in failing), *held_back]) or None,
                ],
            )
        )
    ranked.sort(key=lambda each: each[0])
    return Section(
        "destinations",
        [
            "destination",
            "due",
            "later",
            "in flight",
            "failed",
            "oldest",
            "in/s",
            "sent/s",
            "held back by",
        ],
        [row for _, _, row in ranked],
        [style for _, style, _ in ranked],
    )


def _rate(rows: float | None) -> Cell:
    return None if rows is None else f"{rows:.1f}" if 0 < rows < 10 else f"{rows:.0f}"  # noqa: PLR2004 - a digit more for small ones


def _errors(sample: Sample) -> Section:
    now = sample.backlog.taken_at
    groups = sorted(sample.backlog.failures, key=lambda group: group.latest_at, reverse=True)
    return Section(
        "failed",
        ["failed in", "error", "rows", "latest"],
        [
            [
                group.destination,
                group.error_code,
                group.count,
                f"{age(max(0.0, (now - group.latest_at).total_seconds()))} ago",
            ]
            for group in groups
        ],
        [_BAD] * len(groups),
    )


def _held(sample: Sample) -> Section:
    now = sample.backlog.taken_at
    return Section(
        f"held keys ({sample.held_count:,})",
        ["held key of", "key", "by row", "error", "waiting", "for", "until"],
        [
            [
                one.destination,
                one.ordering_key,
                one.outbox_id,
                one.error_code,
                one.waiting,
                age(max(0.0, (now - one.held_at).total_seconds())),
                one.until,
            ]
            for one in sample.held
        ],
        [_CARE] * len(sample.held),
        max(0, sample.held_count - len(sample.held)),
    )


def _relays(relays: Sequence[RelayView]) -> Section:
    styles = {RelayState.LIVING: "", RelayState.STOPPING: _CARE}
    return Section(
        "relays",
        ["relay", "state", "version", "host", "pid", "silent for", "claims", "up since"],
        [
            [
                one.relay_name,
                one.state,
                one.version,
                one.host,
                one.pid,
                age(one.silent_seconds),
                one.claims,
                moment(one.started_at),
            ]
            for one in relays
        ],
        [styles.get(one.state, _BAD) for one in relays],
    )
