"""Claims of rows with ordering key, from owned lanes, and of rows to be sent alone."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from bridge.database.arrays import array
from bridge.relay.claim import new_claim_id, without_stale
from bridge.relay.pairs import Pairs
from bridge.relay.recent import Recent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.database.session import Session
    from bridge.relay.claim import Intake
    from bridge.relay.flight import Flight
    from bridge.relay.holds import Holds
    from bridge.relay.lanes import Lanes
    from bridge.relay.shares import Shares

_LONGEST_REACH = 1024
_MOST_QUIET = 16
"""Destinations without rows that are looked at all the same, in each lane."""
_ALONE_INTERVAL = 0.05
"""Seconds between two looks for a row to be claimed alone, where the last look found none."""

_SUSPECTS = 16
"""Rows claimed alone that may be under way at a time, while at most two relays died with each."""
_FEW_DEATHS = 2
_ANY_DEATHS = 1 << 30


class OrderedClaims:
    """The claimer's looks at lanes, and at rows with which relays died; used by its thread alone.

    `take_all`: a single claim takes what there is; of many, each leaves room for other lanes.
    """

    def __init__(
        self,
        session: Session,
        intake: Intake,
        flight: Flight,
        lanes: Lanes,
        holds: Holds,
        *,
        shares: Shares,
        take_all: bool,
    ) -> None:
        self._session = session
        self._intake = intake
        self._flight = flight
        self._lanes = lanes
        self._holds = holds
        self._shares = shares
        self._take_all = take_all
        self._pairs = Pairs()
        self._recent = Recent(_MOST_QUIET)
        self._found: list[str] = []
        self._open: list[str] = []
        self._first_lane = 0
        self._lane_reach = 1
        self._alone_claims: frozenset[str] = frozenset()
        self._is_sole = False
        self._next_alone = 0.0
        self.has_suspects = False
        """Whether the last search found rows to be claimed alone."""

    @property
    def destinations(self) -> list[str]:
        """The destinations that have, or lately had, ordered rows."""
        return self._found

    def found(self, destinations: Sequence[str], now: float) -> None:
        """Take what a search at `now` found; `admit` decides which of it is looked at."""
        self._found = self._recent.remember(destinations, now)

    def admit(self) -> None:
        """Look at the destinations that no switch closes from now on."""
        self._open = self._shares.open(self._found)

    def look(self, rows: int, relay_id: int) -> int:
        """Claim, and let followers of released keys come back; the number of entries found."""
        if not self._open and not self._holds.any:
            return 0
        lanes = self._open_lanes()
        # Before the claim, which then finds them: a run with an end must not miss them.
        found = self._holds.work(lanes, relay_id)
        # A batch may be full before the last lane is reached: the next one begins elsewhere.
        self._first_lane = (self._first_lane + 1) % max(1, len(lanes))
        for destinations in self._pairs.rounds(self._open, len(lanes)) if lanes else ():
            taken = self._claim(destinations, rows)
            if taken:
                return max(found, taken)
        return found

    def look_alone(self) -> int:
        """Claim rows whose relays kept dying, each alone, beside the other claims; how many.

        Two kills in a row leave thousands of suspects, nearly all of them innocent: a few of those
        with two deaths are under way at a time. One with which a third relay died is the only
        suspect of its relay, so that its death is no other's.
        """
        now = time.monotonic()
        if not self.has_suspects or now < self._next_alone:
            return 0
        shut = self._shares.shut()
        if shut is None:
            return 0
        self._alone_claims &= self._flight.claims()
        if self._is_sole and self._alone_claims:
            return 0
        taken = 0
        while len(self._alone_claims) < _SUSPECTS:
            one = self._claim_suspect(shut, _FEW_DEATHS)
            if not one:
                break
            taken += one
            self._is_sole = False
        if not taken and not self._alone_claims:
            taken = self._claim_suspect(shut, _ANY_DEATHS)
            self._is_sole = True
        if not taken:
            self._next_alone = now + _ALONE_INTERVAL
        return taken

    def _claim_suspect(self, shut: Any, most_deaths: int) -> int:
        claim_id, started = new_claim_id(), time.monotonic()
        with self._holds.guard:
            claimed = self._session.rows(
                "claim_suspect",
                self._intake.parameters(claim_id)
                | {
                    "lanes": array(self._open_lanes()),
                    "shut": shut,
                    "most_deaths": most_deaths,
                },
            )
            taken = without_stale(claimed)
            self._intake.enter(claim_id, claimed, started)
        if claimed:
            self._alone_claims |= {claim_id}
        return taken

    def _open_lanes(self) -> list[int]:
        held = self._flight.held_lanes
        return [lane for lane in self._lanes.active() if lane not in held]

    def _claim(self, destinations: list[str], rows: int) -> int:
        admitted = self._shares.admit(dict.fromkeys(destinations, rows))
        if not admitted:
            return 0
        claimed: list[Any] = []
        try:
            with self._holds.guard:
                lanes = self._open_lanes()  # anew: what is held is certain under the guard alone
                if not lanes:
                    return 0
                first = self._first_lane % len(lanes)
                quota = rows if self._take_all else self._quota(rows, len(lanes))
                claim_id, started = new_claim_id(), time.monotonic()
                claimed = self._session.rows(
                    "claim_ordered",
                    self._intake.parameters(claim_id)
                    | {
                        "lanes": array(lanes[first:] + lanes[:first]),
                        "lane_quota": quota,
                        "destinations": list(admitted),
                        "quotas": array(admitted.values()),
                        "batch_rows": rows,
                    },
                )
                taken = without_stale(claimed)
                self._intake.enter(claim_id, claimed, started)
        finally:
            self._shares.give_back(admitted, claimed)
        if len(destinations) > 1:
            given = Counter(row[1] for row in claimed)
            share = -(-rows // len(destinations))
            self._pairs.record({name: given[name] for name in destinations}, share)
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

    def _quota(self, rows: int, lanes: int) -> int:
        return max(1, -(-rows * 4 // lanes)) * self._lane_reach
