"""Claims due rows and hands them to the publisher."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import structlog

from bridge.database.arrays import array
from bridge.database.connection import first_line
from bridge.database.session import BUSY, PASSING, ConnectionLost, Session
from bridge.database.template import advisory_class, wake_channel
from bridge.lifecycle import RESCUED_MESSAGE, ErrorCode
from bridge.relay.batch import Batch
from bridge.relay.gate import Gate
from bridge.relay.holds import Holds
from bridge.relay.lanes import Lanes
from bridge.relay.pairs import Pairs
from bridge.relay.targets import Targets

if TYPE_CHECKING:
    from bridge.message import ClaimedRow
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
_ALONE_INTERVAL = 0.05
"""Seconds between two looks for a row to be claimed alone, where the last look found none."""
_HELD_SLEEP = 0.1
"""Seconds that the claimer sleeps at most while keys are held: a released one notifies nobody."""
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
    ) -> None:
        schema = settings.database.schema_name
        self._settings = settings.relay
        self._session = session
        self._registration = registration
        self._flight = flight
        self._run = run
        self._channel = wake_channel(schema)
        self._targets = Targets()
        self._lanes = Lanes(session, registration, flight, advisory_class("lanes", schema))
        self._gate = Gate(session)
        self._pairs = Pairs()
        self.holds = Holds(session)
        self._ordered: list[str] = []
        self._has_suspects = False
        self._alone_claim = ""
        self._next_alone = 0.0
        self._first_lane = 0
        self._last_seen: dict[str, float] = {}
        self._lane_reach = 1
        self._next_return = time.monotonic() + _RETURN_INTERVAL
        self._walk_wanted = False
        self._next_search = 0.0
        self._skip_until = 0.0
        self._row_bytes = 0.0
        self._claimed = 0
        self._log = structlog.get_logger("bridge.relay.claimer")
        self.stop = threading.Event()

    def listen(self, session: Session) -> None:
        """Listen on the wake-up channel; called for each new connection."""
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
            except ConnectionLost as error:
                self._log.warning("database connection lost", reason=str(error))
                if not self._session.reopen(self.stop, self._told):
                    return
                self._log.info("database connection back")
                recover = True
            except BUSY:
                # A lock on a whole table (a migration, VACUUM FULL): it passes.
                self.stop.wait(self._settings.idle_poll)
            except PASSING as error:
                self._log.warning("claim refused, tried again", reason=first_line(error))
                self.stop.wait(_REFUSED_WAIT)
                recover = True

    def _told(self, error: Exception) -> None:
        self._log.warning("database unreachable for claims", reason=str(error))

    def _claim_once(self) -> None:
        limit = self._run.limit or self._settings.batch_rows
        self._await_rescue()
        self._search(force=True)
        taken = room = limit - self._claimed  # less than the limit after a lost connection
        while room and taken == room == limit - self._claimed:
            taken = self._look(room)  # a whole batch of stale entries is no claim
        if limit > self._claimed:
            self._look_ordered(limit - self._claimed)
        if limit > self._claimed:
            self._look_alone()

    def _await_rescue(self) -> None:
        """Wait until what a killed relay left is taken back: under cron no relay lives for long."""
        end = time.monotonic() + _RESCUE_PATIENCE
        while time.monotonic() < end and not self.stop.is_set() and self._has_orphans():
            self.stop.wait(self._settings.idle_poll)

    def _claim_on(self) -> bool:
        """Claim until stopped; True when the run is to end because nothing is due any more."""
        settings = self._settings
        busy_until = 0.0
        while not self.stop.is_set():
            if not self._registration.may_claim(_WAIT_FOR_ROOM):
                continue
            if time.monotonic() >= self._next_return:
                self._next_return = time.monotonic() + _RETURN_INTERVAL
                self._give_back_unknown()
            rows = self._batch_rows()
            if not self._flight.wait_for_room(rows, _WAIT_FOR_ROOM):
                rows = self._flight.room()  # a row that somebody has locked must not stop the rest
                if rows <= 0:
                    continue
            self._search(force=False)
            found = self._look_everywhere(rows)
            if found:
                busy_until = time.monotonic() + settings.busy_window
            if found >= rows or self._targets.backlogged:
                continue
            if time.monotonic() < busy_until:
                self.stop.wait(settings.busy_poll)
                continue
            if self._run.until_empty:
                if self._nothing_due():
                    return True
                self.stop.wait(settings.idle_poll)
                continue
            if self._sleep(rows):
                busy_until = time.monotonic() + settings.busy_window
        return False

    def _batch_rows(self) -> int:
        """Return how many rows to claim next: fewer where payloads are large."""
        settings = self._settings
        if not self._row_bytes:
            return min(settings.batch_rows, settings.max_inflight_rows, _FIRST_ROWS)
        fitting = int(settings.max_inflight_bytes / 4 / self._row_bytes)
        return max(1, min(settings.batch_rows, settings.max_inflight_rows, fitting))

    def _look_everywhere(self, rows: int) -> int:
        """Claim once from destinations, once from lanes, once alone; the largest number."""
        found = self._look(rows) if self._targets else 0
        found = max(found, self._look_ordered(rows))
        return max(found, self._look_alone())

    def _search(self, *, force: bool) -> None:
        """Look which destinations have rows, spending at most a tenth of the time on it."""
        started = time.monotonic()
        if started < self._next_search and not force:
            return
        found = self._session.rows("find_destinations")[0]
        destinations, ordered, self.holds.any, self._has_suspects = found
        self._targets.replace(self._remembered(destinations, started))
        self._ordered = self._pairs.remember(ordered, started)
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
        where = self._targets.parameters(rows)
        parameters = self._parameters(claim_id) | where
        started = time.monotonic()
        claimed = self._claim_without_waiting_long(parameters)
        seconds = time.monotonic() - started
        taken = _without_stale(claimed)
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
        """Claim ordered rows, and let followers of released keys come back; the number found."""
        if not self._ordered and not self.holds.any:
            return 0
        lanes = self._open_lanes()
        # Before the claim, which then finds them: a run with an end must not miss them.
        found = self.holds.work(lanes, self._registration.relay_id)
        # A batch may be full before the last lane is reached: the next one begins elsewhere.
        self._first_lane = (self._first_lane + 1) % max(1, len(lanes))
        for destinations in self._pairs.rounds(self._ordered, len(lanes)) if lanes else ():
            taken = self._claim_ordered(destinations, rows)
            if taken:
                return max(found, taken)
        return found

    def _open_lanes(self) -> list[int]:
        held = self._flight.held_lanes
        return [lane for lane in self._lanes.active() if lane not in held]

    def _claim_ordered(self, destinations: list[str], rows: int) -> int:
        claim_id = _new_claim_id()
        with self.holds.guard:
            lanes = self._open_lanes()  # anew: what is held is certain under the guard alone
            if not lanes:
                return 0
            first = self._first_lane % len(lanes)
            # A single claim takes what there is; of many, each leaves room for other lanes.
            quota = rows if self._run.once else self._lane_quota(rows, len(lanes))
            started = time.monotonic()
            claimed = self._session.rows(
                "claim_ordered",
                self._parameters(claim_id)
                | {
                    "lanes": array(lanes[first:] + lanes[:first]),
                    "lane_quota": quota,
                    "destinations": destinations,
                    "quotas": array([rows] * len(destinations)),
                    "batch_rows": rows,
                },
            )
            taken = _without_stale(claimed)
            if len(destinations) > 1:
                given = Counter(row[1] for row in claimed)
                share = -(-rows // len(destinations))
                self._pairs.record({name: given[name] for name in destinations}, share)
            self._enter(claim_id, claimed, started)
        if taken >= rows:
            self._lane_reach = max(1, self._lane_reach // 2)
            return taken
        if claimed and max(Counter(row[12] for row in claimed).values()) < quota:
            self._lane_reach = 1
            return taken
        # Some lane has more than its quota while others have less: one key's backlog. Or nothing
        # was found although lanes have rows: perhaps the first of a lane wait for a row that
        # somebody has locked. Looking further finds the rest, and the keys behind them.
        self._lane_reach = min(2 * self._lane_reach, _LONGEST_REACH)
        return rows if claimed else taken

    def _lane_quota(self, rows: int, lanes: int) -> int:
        return max(1, -(-rows * 4 // lanes)) * self._lane_reach

    def _look_alone(self) -> int:
        """Claim one row whose relays kept dying, beside the other claims, one at a time."""
        now = time.monotonic()
        if not self._has_suspects or now < self._next_alone:
            return 0
        if self._alone_claim in self._flight.claims():
            return 0
        claim_id = _new_claim_id()
        with self.holds.guard:
            claimed = self._session.rows(
                "claim_suspect",
                self._parameters(claim_id) | {"lanes": array(self._open_lanes()), "closed": []},
            )
            taken = _without_stale(claimed)
            self._enter(claim_id, claimed, now)
        if claimed:
            self._alone_claim = claim_id
        if not taken:
            self._next_alone = now + _ALONE_INTERVAL
        return taken

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
        return not self._has_orphans() and not self._session.rows("find_due")[0][0]

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
            longest = min(settings.sleep, _HELD_SLEEP) if self.holds.any else settings.sleep
            woken = self._gate.wait(longest, self.stop)
            if woken:
                self._next_search = 0.0
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
