"""Claims due rows and hands them to the publisher."""

from __future__ import annotations

import math
import random
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg

from bridge.database.session import BUSY, PASSING, ConnectionLost, Session
from bridge.database.template import advisory_class, wake_channel
from bridge.errors import KafkaError
from bridge.lifecycle import RESCUED_MESSAGE, ErrorCode
from bridge.relay.batch import Batch
from bridge.relay.controls import Controls
from bridge.relay.gate import Gate
from bridge.relay.lanes import Lanes
from bridge.relay.targets import Targets

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
_LONGEST_REACH = 1024
_REMEMBER = 10.0
"""Seconds for which a destination is looked at after its last row was seen."""
_MOST_REMEMBERED = 50
"""Destinations without rows that are looked at all the same: each costs a look into the index."""
_RETURN_INTERVAL = 30.0
"""Seconds between two looks for own claims whose answer was lost with a connection."""
_BACKLOG_SEARCH = 0.25
"""Seconds between two looks for new destinations while known ones have a backlog."""
_RESCUE_PATIENCE = 10.0
"""Seconds that a run of one claim waits for the rescue of dead relays' rows."""
_KAFKA_PATIENCE = 30.0
"""Seconds that a run with an end waits for Kafka, or for a destination that fails."""
_FIRST_ROWS = 50
"""Rows of the first claim, while the size of payloads is unknown."""


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
        self._destinations: list[str] = []
        self._allowed: dict[str, int] = {}
        self._controls = Controls(session)
        self._shut_since = math.inf
        self._channel = wake_channel(schema)
        self._targets = Targets()
        self._lanes = Lanes(session, registration, flight, advisory_class("lanes", schema))
        self._gate = Gate(session)
        self._ordered = False
        self._first_lane = 0
        self._last_seen: dict[str, float] = {}
        self._lane_reach = 1
        self._next_return = time.monotonic() + _RETURN_INTERVAL
        self._walk_wanted = False
        self._next_search = 0.0
        self._skip_until = 0.0
        self._row_bytes = 0.0
        self._claimed = 0
        self.stop = threading.Event()

    def listen(self, session: Session) -> None:
        """Listen on the wake-up channel; called for each new connection."""
        if session.is_pooled:
            return
        session.connection.execute(
            psycopg.sql.SQL("listen {}").format(psycopg.sql.Identifier(self._channel))
        )

    def walk_soon(self) -> None:
        """Look at everything next time, from any thread: rows have come back to old places."""
        self._walk_wanted = True

    def run(self) -> None:
        """Claim until stopped, or until the run's end; a lost connection is opened again."""
        recover = False
        while not self.stop.is_set():
            try:
                if recover:
                    self._give_back_unknown()
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
        self._await_admission()
        taken = room = limit - self._claimed  # less than the limit after a lost connection
        while room and taken == room == limit - self._claimed:
            taken = self._look(room)  # a whole batch of stale entries is no claim
        if self._ordered and limit > self._claimed:
            self._look_ordered(limit - self._claimed)

    def _await_rescue(self) -> None:
        """Wait until what a killed relay left is taken back: under cron no relay lives for long."""
        end = time.monotonic() + _RESCUE_PATIENCE
        while time.monotonic() < end and not self.stop.is_set() and self._has_orphans():
            self.stop.wait(self._settings.idle_poll)

    def _await_admission(self) -> None:
        """Wait until the topics of all destinations have been looked at."""
        end = time.monotonic() + _KAFKA_PATIENCE
        while time.monotonic() < end and not self.stop.is_set():
            self._admission.changed.clear()
            self._admission.begin()
            self._admission.limits(self._destinations)
            if not self._admission.is_new:
                return
            self._admission.changed.wait(self._settings.idle_poll)

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

    def _claim_on(self) -> bool:
        """Claim until stopped; True when the run is to end because nothing is due any more."""
        settings = self._settings
        busy_until = 0.0
        while not self.stop.is_set():
            if not (self._registration.may_claim(_WAIT_FOR_ROOM) and self._has_kafka()):
                continue
            if time.monotonic() >= self._next_return:
                self._next_return = time.monotonic() + _RETURN_INTERVAL
                self._give_back_unknown()
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

    def _await_room(self) -> int:
        """Wait until a batch may be claimed; how many rows that are, 0 or less: none now."""
        rows = self._batch_rows()
        if self._flight.wait_for_room(rows, _WAIT_FOR_ROOM):
            return rows
        return self._flight.room()  # a row that somebody has locked must not stop the rest

    def _batch_rows(self) -> int:
        """Return how many rows to claim next: fewer where payloads are large."""
        settings = self._settings
        if not self._row_bytes:
            return min(settings.batch_rows, settings.max_inflight_rows, _FIRST_ROWS)
        fitting = int(settings.max_inflight_bytes / 4 / self._row_bytes)
        return max(1, min(settings.batch_rows, settings.max_inflight_rows, fitting))

    def _read_switches(self, *, force: bool = False) -> None:
        if self._controls.refresh(force=force):
            self._admit_found()
            self._targets.start_over()

    def _admit_found(self) -> None:
        """Look at the destinations that no switch closes."""
        names = self._destinations
        if self._controls.any:
            names = [name for name in names if not self._controls.switch(name).closed]
        self._targets.replace(names)

    def _admitted(self, quotas: dict[str, int]) -> dict[str, int]:
        """Return how many rows of each may be claimed; those that give none now are left out."""
        limits = self._admission.limits(quotas)
        admitted = {name: min(quotas[name], limit) for name, limit in limits.items()}
        if self._controls.any:
            for name, rows in list(admitted.items()):
                most = self._controls.switch(name).batch_rows
                taken = self._controls.take(name, rows if most is None else min(rows, most))
                admitted[name] = taken
        self._allowed = {name: rows for name, rows in admitted.items() if rows}
        return self._allowed

    def _give_back_unused(self, claimed: list[ClaimedRow]) -> None:
        """Give the rate limits back what the claim did not find."""
        if self._controls.any:
            used = Counter(row[1] for row in claimed)
            for name, rows in self._allowed.items():
                self._controls.give_back(name, rows - used[name])

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
        wait = self._controls.wait_for_rows(self._destinations)
        if wait is None:
            return False
        if not found:
            settings = self._settings
            poll = settings.busy_poll if time.monotonic() < busy_until else settings.idle_poll
            self.stop.wait(min(max(wait, settings.busy_poll), poll))
        return True

    def _look_everywhere(self, rows: int) -> int:
        """Claim once from destinations and once from lanes; the larger number of entries."""
        self._admission.begin()
        found = self._look(rows) if self._targets else 0
        if self._ordered:
            found = max(found, self._look_ordered(rows))
        return found

    def _search(self, *, force: bool) -> None:
        """Look which destinations have rows, spending at most a tenth of the time on it."""
        self._read_switches()
        started = time.monotonic()
        if started < self._next_search and not force:
            return
        destinations, self._ordered = self._session.rows("find_destinations")[0]
        self._destinations = self._remembered(destinations, started)
        self._admit_found()
        took = time.monotonic() - started
        # Known destinations are looked at with each claim; amid a backlog a new one may wait a bit.
        pause = _BACKLOG_SEARCH if self._targets.backlogged else self._settings.idle_poll
        self._next_search = started + min(5.0, max(pause, 10 * took))

    def _remembered(self, found: list[str], now: float) -> list[str]:
        """Return what was found, and what had rows lately: its next row must not wait for a search.

        A busy destination's queue is empty most of the time.
        """
        self._last_seen.update(dict.fromkeys(found, now))
        if len(self._last_seen) > len(found):
            recent = {name: at for name, at in self._last_seen.items() if at > now - _REMEMBER}
            quiet = sorted(recent.keys() - set(found), key=lambda name: -recent[name])
            self._last_seen = recent
            return found + quiet[:_MOST_REMEMBERED]
        return found

    def _parameters(self, claim_id: str) -> dict[str, Any]:
        return {
            "claim_id": claim_id,
            "relay_id": self._registration.relay_id,
            "relay_name": self._settings.name,
            "inline_bytes": self._settings.inline_payload_bytes,
        }

    def _look(self, rows: int) -> int:
        """Claim once from the destinations; the number of entries taken, stale ones included."""
        claim_id = _new_claim_id()
        if self._walk_wanted:
            self._walk_wanted = False
            self._targets.walk_now()
        where = self._targets.parameters(rows, self._admitted)
        if not where["destinations"]:
            return 0
        parameters = self._parameters(claim_id) | where
        started = time.monotonic()
        claimed: list[ClaimedRow] = []
        try:
            claimed = self._claim_without_waiting_long(parameters)
            seconds = time.monotonic() - started
            taken = _without_stale(claimed)
        finally:
            self._give_back_unused(claimed)
        self._targets.record(claimed, taken)
        self._enter(claim_id, claimed, started)
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

    def _look_ordered(self, rows: int) -> int:
        held = self._flight.held_lanes
        lanes = [lane for lane in self._lanes.active() if lane not in held]
        if not lanes:
            return 0
        claim_id = _new_claim_id()
        # A batch may be full before the last lane is reached: the next one begins elsewhere.
        self._first_lane = (self._first_lane + 1) % len(lanes)
        started = time.monotonic()
        claimed = self._session.rows(
            "claim_ordered",
            self._parameters(claim_id)
            | {
                "lanes": lanes[self._first_lane :] + lanes[: self._first_lane],
                # A single claim takes what there is; of many, each leaves room for other lanes.
                "lane_quota": rows if self._run.once else self._lane_quota(rows, len(lanes)),
                "batch_rows": rows,
            },
        )
        taken = _without_stale(claimed)
        # Nothing although lanes have rows: perhaps the first of a lane wait for a row that somebody
        # has locked. Looking further finds the keys behind them.
        self._lane_reach = 1 if taken else min(2 * self._lane_reach, _LONGEST_REACH)
        self._enter(claim_id, claimed, started)
        return taken

    def _lane_quota(self, rows: int, lanes: int) -> int:
        return max(1, -(-rows * 4 // lanes)) * self._lane_reach

    def _read_floor(self) -> int | None:
        floor: int | None = self._session.rows("find_writer_floor")[0][0]
        return floor

    def _enter(self, claim_id: str, claimed: list[Any], started: float) -> None:
        if not claimed:
            return
        claimed.sort(key=_outbox_id)
        self._claimed += len(claimed)
        batch = Batch(claim_id, claimed, started)
        average = (batch.payload_bytes + batch.large_bytes) / len(claimed)
        # Follow growth at once and shrinking slowly: one large batch too many costs memory.
        self._row_bytes = max(average, 0.8 * self._row_bytes + 0.2 * average, 1.0)
        self._flight.enter(batch)

    def _nothing_due(self) -> bool:
        """Tell whether nothing is due and nothing is in flight here or at a relay that died."""
        if self._flight.rows:
            return False
        # Orphans first: between the two questions a rescue may turn them into due rows.
        closed, exceptions = self._controls.closed_by_default()
        switches = {"closed": closed, "exceptions": exceptions}
        return not self._has_orphans() and not self._session.rows("find_due", switches)[0][0]

    def _has_orphans(self) -> bool:
        """Tell whether any claim belongs to a relay that is gone and waits to be taken back."""
        orphans: bool = self._session.rows(
            "find_orphans",
            {
                "relay_id": self._registration.relay_id,
                "relay_class": advisory_class("relay", self._session.schema),
            },
        )[0][0]
        return orphans

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
            woken = self._gate.wait(longest, self.stop, self._admission.changed)
            if woken:
                self._next_search = 0.0
                if self._controls.any:
                    self._read_switches(force=True)
            return woken
        finally:
            self._gate.open_gate()

    def _give_back_unknown(self) -> None:
        """After a lost connection: claims whose answer never came are given back, uncharged."""
        known = self._flight.claims()
        relay_id = self._registration.relay_id
        for (claim_id,) in self._session.rows(
            "find_claims", {"relay_id": relay_id, "stuck_seconds": 0}
        ):
            if str(claim_id) not in known:
                self._session.rows(
                    "rescue_claim",
                    {
                        "claim_id": claim_id,
                        "error_code": ErrorCode.STUCK_PROCESSING,
                        "error_message": RESCUED_MESSAGE,
                    },
                )


def _new_claim_id() -> str:
    """Return a random UUID; unlike uuid4 it makes no system call, which would cost a turn."""
    return str(uuid.UUID(int=random.getrandbits(128), version=4))


def _without_stale(claimed: list[Any]) -> int:
    """Take the row that tells of stale entries off; returns how many entries were taken in all."""
    if not claimed or claimed[-1][0] is not None:
        return len(claimed)
    stale: int = claimed.pop()[10]
    return len(claimed) + stale


def _outbox_id(row: ClaimedRow) -> int:
    return row[0]
