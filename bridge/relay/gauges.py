"""What the metrics say that is only looked up when somebody asks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.lifecycle import Status
from bridge.monitor import RelayState
from bridge.relay.breakers import State
from bridge.telemetry import names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from bridge.monitor import Backlog
    from bridge.relay.breakers import Breakers
    from bridge.relay.claimer import Claimer
    from bridge.relay.flight import Flight
    from bridge.relay.outages import DatabaseState
    from bridge.relay.probes import Probes
    from bridge.relay.sampler import Sampler
    from bridge.relay.tally import RelayReport
    from bridge.relay.vitals import Vitals
    from bridge.telemetry.labels import DestinationLabels
    from bridge.telemetry.metrics import Instruments

    Values = Iterable[tuple[float, Mapping[str, str]]]


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a relay that its metrics look at. `is_out`: whether no broker answers."""

    report: RelayReport
    claimer: Claimer
    flight: Flight
    breakers: Breakers
    database: DatabaseState
    vitals: Vitals
    probes: Probes
    is_out: Callable[[], bool]


class RelayGauges:
    """The state of one relay and the counts of what it did; read at each scrape."""

    def __init__(self, parts: Parts, labels: DestinationLabels) -> None:
        self._parts = parts
        self._labels = labels

    def register(self, instruments: Instruments) -> None:
        """Have everything asked for at each scrape."""
        parts, report = self._parts, self._parts.report
        single: dict[names.Metric, Callable[[], float]] = {
            names.CLAIMED: lambda: parts.claimer.claimed,
            names.SENT: lambda: report.sent,
            names.RETRIED: lambda: report.retried,
            names.FAILED: lambda: report.failed,
            names.RELEASED: lambda: report.released,
            names.RESCUED: lambda: report.rescued,
            names.LOST_LEASES: lambda: report.lost_leases,
            names.IN_FLIGHT_PAYLOAD: lambda: parts.flight.payload_bytes + parts.flight.large_bytes,
            names.KAFKA_OUTAGE: parts.is_out,
            names.DATABASE_LOST: lambda: parts.database.is_lost,
            names.DATABASE_REFUSES: lambda: parts.database.refuses,
            names.LIVE: lambda: not parts.probes.live(),
            names.READY: lambda: not parts.probes.ready(),
        }
        for metric, read in single.items():
            instruments.observe(metric, _single(read))
        instruments.observe(names.IN_FLIGHT, self._in_flight)
        instruments.observe(names.BREAKER, self._breakers)
        instruments.observe(names.STAGE_SILENCE, self._silences)

    def _in_flight(self) -> Values:
        rows = Counter(dict.fromkeys(self._labels.known(), 0))
        for destination, account in self._parts.flight.accounts():
            rows[self._labels.of(destination)] += account.rows
        return [(count, {"destination": label}) for label, count in rows.items()]

    def _breakers(self) -> Values:
        found: Counter[tuple[str, State]] = Counter()
        for destination, state in self._parts.breakers.states().items():
            found[self._labels.of(destination), state] += 1
        labels = dict.fromkeys(label for label, _ in found)
        return [
            (found[label, state], {"destination": label, "state": state.value})
            for label in labels
            for state in State
        ]

    def _silences(self) -> Values:
        silences = self._parts.vitals.silences()
        return [(seconds, {"stage": stage}) for stage, seconds in silences.items()]


class BacklogGauges:
    """The backlog of the whole database, where this relay is the one that samples it."""

    def __init__(self, sampler: Sampler, labels: DestinationLabels) -> None:
        self._sampler = sampler
        self._labels = labels

    def register(self, instruments: Instruments) -> None:
        """Have everything asked for at each scrape."""
        instruments.observe(names.LEADER, _single(lambda: self._sampler.is_leading))
        instruments.observe(names.BACKLOG, self._messages)
        instruments.observe(names.BACKLOG_DUE, self._due)
        instruments.observe(names.OLDEST_AGE, self._oldest)
        instruments.observe(names.SAMPLE_AGE, self._sample_age)
        instruments.observe(names.SAMPLE_DURATION, self._sample_duration)
        instruments.observe(names.HELD_KEYS, self._held_keys)
        instruments.observe(names.KEY_FOLLOWERS, self._followers)
        instruments.observe(names.RELAYS, self._relays)
        instruments.observe(names.SWITCHES, self._switches)

    def _messages(self) -> Values:
        found: Counter[tuple[str, Status]] = Counter()
        for label, name, backlog in self._destinations():
            for status in Status:
                found[label, status] += backlog.destinations[name].counts[status]
        return [
            (rows, {"destination": label, "status": status.value})
            for (label, status), rows in found.items()
        ]

    def _due(self) -> Values:
        found: Counter[str] = Counter()
        for label, name, backlog in self._destinations():
            found[label] += backlog.destinations[name].due
        return _by_destination(found)

    def _oldest(self) -> Values:
        found: dict[str, float] = {}
        for label, name, backlog in self._destinations():
            age = backlog.destinations[name].oldest_unsent_seconds or 0.0
            found[label] = max(age, found.get(label, 0.0))
        return _by_destination(found)

    def _destinations(self) -> Iterator[tuple[str, str, Backlog]]:
        """Yield label and name; those with most to send are the first to be given a label."""
        sample = self._sampler.current()
        if sample is None:
            return
        backlog = sample.backlog
        for name in sorted(backlog.destinations, key=lambda name: _unsent(backlog, name)):
            yield self._labels.of(name), name, backlog

    def _sample_age(self) -> Values:
        sample = self._sampler.current()
        return [] if sample is None else [(self._sampler.age(sample), {})]

    def _sample_duration(self) -> Values:
        sample = self._sampler.current()
        return [] if sample is None else [(sample.seconds, {})]

    def _held_keys(self) -> Values:
        return self._holds(0)

    def _followers(self) -> Values:
        return self._holds(1)

    def _holds(self, column: int) -> Values:
        sample = self._sampler.current()
        if sample is None:
            return []
        found: Counter[str] = Counter()
        for label, _, _ in self._destinations():
            found[label] += 0  # a key that is let go of goes down to 0, and does not vanish
        for name, counts in sample.holds.items():
            found[self._labels.of(name)] += counts[column]
        return _by_destination(found)

    def _relays(self) -> Values:
        sample = self._sampler.current()
        if sample is None:
            return []
        found = Counter(one.state for one in sample.backlog.relays)
        return [(found[state], {"state": state.value}) for state in RelayState]

    def _switches(self) -> Values:
        sample = self._sampler.current()
        if sample is None:
            return []
        found = {
            (
                one.destination if one.destination == "*" else self._labels.of(one.destination),
                one.switch,
            )
            for one in sample.backlog.switches
            if one.effective
        }
        return [
            (1, {"destination": destination, "switch": switch}) for destination, switch in found
        ]


def _single(read: Callable[[], float]) -> Callable[[], Values]:
    return lambda: [(float(read()), {})]


def _by_destination(values: Mapping[str, float]) -> Values:
    return [(value, {"destination": label}) for label, value in values.items()]


def _unsent(backlog: Backlog, name: str) -> int:
    counts = backlog.destinations[name].counts
    return -(counts[Status.PENDING] + counts[Status.PROCESSING] + counts[Status.FAILED])
