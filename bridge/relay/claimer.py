"""Claims due rows and hands them to the publisher."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg

from bridge.database.session import BUSY, PASSING, ConnectionLost, Session
from bridge.database.template import advisory_class, wake_channel
from bridge.errors import KafkaError
from bridge.relay.claim import Intake, new_claim_id, without_stale
from bridge.relay.controls import Controls
from bridge.relay.gate import Gate
from bridge.relay.holds import Holds
from bridge.relay.lanes import Lanes
from bridge.relay.ordered import OrderedClaims
from bridge.relay.orphans import Orphans
from bridge.relay.recent import Recent
from bridge.relay.shares import Shares
from bridge.relay.targets import Targets
from bridge.relay.vitals import Pulse

if TYPE_CHECKING:
    from bridge.message import ClaimedRow
    from bridge.relay.admission import Admission
    from bridge.relay.flight import Flight
    from bridge.relay.registration import Registration
    from bridge.settings import Settings

_WAIT_FOR_ROOM = 0.2
_SKIP_SECONDS = 5.0
"""How long claims avoid waiting for locked rows after one made them wait."""
_REFUSED_WAIT = 1.0
_MOST_QUIET = 50
"""Destinations without rows that are looked at all the same."""
_RETURN_INTERVAL = 30.0
"""Seconds between two looks for own claims whose answer was lost with a connection."""
_BACKLOG_SEARCH = 0.25
"""Seconds between two looks for new destinations while known ones have a backlog."""
_RESCUE_PATIENCE = 10.0
"""Seconds that a run of one claim waits for the rescue of dead relays' rows."""
_KAFKA_PATIENCE = 30.0
"""Seconds that a run with an end waits for Kafka, or for a destination that fails."""
_HELD_SLEEP = 0.1
"""Seconds that the claimer sleeps at most while keys are held: a released one notifies nobody."""


@dataclass(frozen=True, slots=True)
class Run:
    """How long the claimer goes on: for ever, until nothing is due, or for one claim."""

    until_empty: bool = False
    once: bool = False
    limit: int | None = None


class Claimer:
    """The stage that claims: one thread, one connection that also listens for wake-ups."""

    def __init__(
        self,
        settings: Settings,
        session: Session,
        registration: Registration,
        flight: Flight,
        run: Run,
        *,
        admission: Admission,
    ) -> None:
        schema = settings.database.schema_name
        self._settings = settings.relay
        self._session = session
        self._registration = registration
        self._flight = flight
        self._run = run
        self._admission = admission
        self._controls = Controls(session)
        self._shares = Shares(admission, self._controls)
        self._intake = Intake(settings.relay, registration, flight)
        self._orphans = Orphans(session, registration)
        self._channel = wake_channel(schema)
        self._targets = Targets()
        self._gate = Gate(session)
        self.holds = Holds(session)
        self._ordered = OrderedClaims(
            session,
            self._intake,
            flight,
            Lanes(session, registration, flight, advisory_class("lanes", schema)),
            self.holds,
            shares=self._shares,
            take_all=run.once,
        )
        self._destinations: list[str] = []
        self._recent = Recent(_MOST_QUIET)
        self._next_return = time.monotonic() + _RETURN_INTERVAL
        self._walk_wanted = False
        self._next_search = 0.0
        self._skip_until = 0.0
        self._shut_since = math.inf
        self.pulse = Pulse()
        self.stop = threading.Event()

    def listen(self, session: Session) -> None:
        """Listen on the wake-up channel; called for each new connection."""
        if session.is_pooled:
            return
        session.connection.execute(
            psycopg.sql.SQL("listen {}").format(psycopg.sql.Identifier(self._channel))
        )

    @property
    def claimed(self) -> int:
        """Rows claimed so far."""
        return self._intake.claimed

    def walk_soon(self) -> None:
        """Look at everything next time, from any thread: rows have come back to old places."""
        self._walk_wanted = True

    def run(self) -> None:
        """Claim until stopped, or until the run's end; a lost connection is opened again."""
        recover = False
        while not self.stop.is_set():
            self.pulse.beat()
            try:
                if recover:
                    self._orphans.give_back_unknown(self._flight.claims())
                    recover = False
                if self._run.once:
                    self._claim_once()
                    return
                if self._claim_on():
                    return
            except ConnectionLost:
                if not self._session.reopen(self.stop):
                    return
                recover = True
            except BUSY:
                # A lock on a whole table (a migration, VACUUM FULL): it passes.
                self.stop.wait(self._settings.idle_poll)
            except PASSING:
                self.stop.wait(_REFUSED_WAIT)
                recover = True

    def _claim_once(self) -> None:
        limit = self._run.limit or self._settings.batch_rows
        self._await_rescue()
        self._search(force=True)
        self._await_topics()
        intake = self._intake
        taken = room = limit - intake.claimed  # less than the limit after a lost connection
        while room and taken == room == limit - intake.claimed:
            taken = self._look(room)  # a whole batch of stale entries is no claim
        if limit > intake.claimed:
            self._look_ordered(limit - intake.claimed)
        if limit > intake.claimed:
            self._look_alone()

    def _await_rescue(self) -> None:
        """Wait until what a killed relay left is taken back: under cron no relay lives for long."""
        end = time.monotonic() + _RESCUE_PATIENCE
        while time.monotonic() < end and not self.stop.is_set() and self._orphans.any_waits():
            self.stop.wait(self._settings.idle_poll)

    def _await_topics(self) -> None:
        """Wait until the topics of all destinations have been looked at."""
        end = time.monotonic() + _KAFKA_PATIENCE
        names = [*self._destinations, *self._ordered.destinations]
        while time.monotonic() < end and not self.stop.is_set():
            self._admission.changed.clear()
            self._admission.begin()
            self._admission.limits(names)
            if not self._admission.is_new:
                return
            self._admission.changed.wait(self._settings.idle_poll)

    def _claim_on(self) -> bool:
        """Claim until stopped; True when the run is to end because nothing is due any more."""
        settings = self._settings
        busy_until = 0.0
        while not self.stop.is_set():
            self.pulse.beat()
            if not (self._registration.may_claim(_WAIT_FOR_ROOM) and self._has_kafka()):
                continue
            if time.monotonic() >= self._next_return:
                self._next_return = time.monotonic() + _RETURN_INTERVAL
                self._orphans.give_back_unknown(self._flight.claims())
            rows = self._await_room()
            if rows <= 0:
                continue
            self._search(force=False)
            found = self._look_everywhere(rows)
            if found:
                busy_until = time.monotonic() + settings.busy_window
                self._shut_since = math.inf
            if self._is_pressed(found, rows, busy_until):
                continue
            if time.monotonic() < busy_until:
                self.stop.wait(settings.busy_poll)
            elif self._run.until_empty:
                if self._nothing_due():
                    return True
                if not self._flight.rows:
                    self._check_shut()
                self.stop.wait(settings.idle_poll)
            elif self._sleep(rows):
                busy_until = time.monotonic() + settings.busy_window
        return False

    def _has_kafka(self) -> bool:
        """Tell whether any broker answers; waits a moment where none does."""
        self._admission.changed.clear()
        if not self._admission.outage.is_set():
            return True
        if self._run.until_empty:
            self._check_shut()
        self._admission.changed.wait(_WAIT_FOR_ROOM)
        return False

    def _check_shut(self) -> None:
        """Raise KafkaError once what is due could not go out for long; for runs with an end."""
        now = time.monotonic()
        self._shut_since = min(self._shut_since, now)
        if now - self._shut_since < _KAFKA_PATIENCE:
            return
        if self._admission.outage.is_set():
            raise KafkaError("Kafka does not answer; the rows that are due stay PENDING")
        for name, reason in self._admission.failing().items():
            raise KafkaError(
                f"destination {name} takes no records: {reason}; its rows stay PENDING, "
                f"see `outbox-bridge list --destination {name}`"
            )

    def _await_room(self) -> int:
        """Wait until a batch may be claimed; how many rows that are, 0 or less: none now."""
        rows = self._intake.batch_rows()
        if self._flight.wait_for_room(rows, _WAIT_FOR_ROOM):
            return rows
        return self._flight.room()  # a row that somebody has locked must not stop the rest

    def _read_switches(self, *, force: bool = False) -> None:
        if self._controls.refresh(force=force):
            self._admit()
            self._targets.start_over()

    def _is_pressed(self, found: int, rows: int, busy_until: float) -> bool:
        """Tell whether to look again at once, after waiting for what holds known rows back."""
        if self._wait_for_limits(found, busy_until):
            return True
        if found >= rows or (found and self._targets.backlogged):
            return True
        if self._admission.is_full:
            self._flight.wait_for_change(self._settings.idle_poll)
            return True
        return False

    def _wait_for_limits(self, found: int, busy_until: float) -> bool:
        """Wait where a rate limit holds rows back; True: look again instead of going to sleep."""
        if not self._controls.any:
            return False
        wait = self._controls.wait_for_rows([*self._destinations, *self._ordered.destinations])
        if wait is None:
            return False
        if not found:
            settings = self._settings
            poll = settings.busy_poll if time.monotonic() < busy_until else settings.idle_poll
            self.stop.wait(min(max(wait, settings.busy_poll), poll))
        return True

    def _look_everywhere(self, rows: int) -> int:
        """Claim once from destinations, once from lanes, once alone; the largest number."""
        self._admission.begin()
        found = self._look(rows) if self._targets else 0
        found = max(found, self._look_ordered(rows))
        return max(found, self._look_alone())

    def _look_ordered(self, rows: int) -> int:
        return self._ordered.look(rows, self._registration.relay_id)

    def _look_alone(self) -> int:
        return self._ordered.look_alone()

    def _search(self, *, force: bool) -> None:
        """Look which destinations have rows, spending at most a tenth of the time on it."""
        self._read_switches()
        started = time.monotonic()
        if started < self._next_search and not force:
            return
        found = self._session.rows("find_destinations")[0]
        destinations, ordered, self.holds.any, self._ordered.has_suspects = found
        self._destinations = self._recent.remember(destinations, started)
        self._ordered.found(ordered, started)
        self._admit()
        took = time.monotonic() - started
        # Known destinations are looked at with each claim; amid a backlog a new one may wait a bit.
        pause = _BACKLOG_SEARCH if self._targets.backlogged else self._settings.idle_poll
        self._next_search = started + min(5.0, max(pause, 10 * took))

    def _admit(self) -> None:
        """Look at the destinations that no switch closes from now on."""
        self._targets.replace(self._shares.open(self._destinations))
        self._ordered.admit()

    def _look(self, rows: int) -> int:
        """Claim once from the destinations; the number of entries taken, stale ones included."""
        if self._walk_wanted:
            self._walk_wanted = False
            self._targets.walk_now()
        admitted: dict[str, int] = {}

        def admit(quotas: dict[str, int]) -> dict[str, int]:
            admitted.update(self._shares.admit(quotas))
            return admitted

        where = self._targets.parameters(rows, admit)
        if not admitted:
            return 0
        claim_id, started = new_claim_id(), time.monotonic()
        parameters = self._intake.parameters(claim_id) | where
        claimed: list[ClaimedRow] = []
        try:
            claimed = self._claim_without_waiting_long(parameters)
            seconds = time.monotonic() - started
            taken = without_stale(claimed)
        finally:
            self._shares.give_back(admitted, claimed)
        self._targets.record(claimed, taken)
        self._intake.enter(claim_id, claimed, started)
        self._targets.looked(seconds, self._read_floor)
        return taken

    def _claim_without_waiting_long(self, parameters: dict[str, Any]) -> list[ClaimedRow]:
        """Claim; where somebody's open transaction holds a row, claim the others instead."""
        if time.monotonic() >= self._skip_until:
            try:
                return self._session.rows("claim_rows", parameters)
            except BUSY:
                self._skip_until = time.monotonic() + _SKIP_SECONDS
        return self._session.rows("claim_rows_skipping", parameters)

    def _read_floor(self) -> int | None:
        floor: int | None = self._session.rows("find_writer_floor")[0][0]
        return floor

    def _nothing_due(self) -> bool:
        """Tell whether nothing is due and nothing is in flight here or at a relay that died."""
        if self._flight.rows:
            return False
        # Orphans first: between the two questions a rescue may turn them into due rows.
        closed, exceptions = self._controls.closed_by_default()
        switches = {"closed": closed, "exceptions": exceptions}
        return not self._orphans.any_waits() and not self._session.value("find_due", switches)

    def _sleep(self, rows: int) -> bool:
        """Close the gate, look once more, sleep until somebody commits a row; True: look again."""
        settings = self._settings
        if not self._gate.close_gate():
            self.stop.wait(settings.idle_poll)
            return False
        try:
            self._search(force=True)
            if self._look_everywhere(rows):
                return True
            longest = self._controls.longest_sleep(settings.sleep)
            if self.holds.any:
                longest = min(longest, _HELD_SLEEP)
            woken = self._gate.wait(longest, self.stop, self._admission.changed)
            if woken:
                self._next_search = 0.0
                if self._controls.any:
                    self._read_switches(force=True)
            return woken
        finally:
            self._gate.open_gate()
