"""Watches over Kafka: looks at topics, notices what does not move, and when it moves again."""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

import structlog

from bridge.kafka.topics import Condition
from bridge.relay.vitals import Pulse

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.kafka.topics import Topics, TopicState
    from bridge.relay.admission import Admission
    from bridge.relay.breakers import Breakers
    from bridge.relay.flight import Flight
    from bridge.relay.producers import Producers
    from bridge.relay.target import Aim
    from bridge.routing import Router

TICK = 0.1
STALL = 2.0
"""Seconds without any report of a destination's records after which its topic is looked at."""
LOOK_TIMEOUT = 5.0
_PROBE_TIMEOUT = 5.0
"""Seconds: a client whose broker froze needs some to turn to another one."""
_FIRST_PROBE = 0.5
_LONGEST_PROBE = 5.0
"""Seconds between two probes of a cluster that does not answer."""
_LOOKS = 4
"""Topics looked at side by side."""
_PATIENT_LOOK = 2.0
"""Seconds between two looks at a topic some of whose records do not move."""
_SHORTAGE = 0.3
_LONGEST_SHORTAGE = 10.0
"""Records are taken back before they expire: this share of their time, or so many seconds."""


class Watch:
    """The thread that asks the cluster while the publisher goes on.

    A record that Kafka does not take stays with its producer, which sends it once when the brokers
    are back: nothing is given back while the records may yet go out in order. Meanwhile nothing
    more is claimed of what does not move: of everything while no broker answers, else of the
    destination, else of the partitions without leader. Before records of ordered rows expire one by
    one, all that was not sent is taken back from the producers at once, so that no later record
    passes an expired one. What is then still on its way to a broker goes, too, with its producer:
    a new one begins, and the old one's records can only come as often and in the order as before.
    """

    def __init__(
        self,
        topics: Topics,
        router: Router,
        *,
        producers: Producers,
        flight: Flight,
        breakers: Breakers,
        admission: Admission,
        aim: Aim,
        create_missing: bool,
        record_timeout: float,
    ) -> None:
        self._topics = topics
        self._router = router
        self._producers = producers
        self._flight = flight
        self._breakers = breakers
        self._admission = admission
        self._aim = aim
        self._create_missing = create_missing
        shortage = min(_LONGEST_SHORTAGE, _SHORTAGE * record_timeout)
        self._purge_age = record_timeout - shortage
        self._retire_age = record_timeout - shortage / 2
        self._stall = min(STALL, record_timeout / 3)
        self._probe_wait = _FIRST_PROBE
        self._next_probe = 0.0
        self._looked_at: dict[str, float] = {}
        self._leaderless: dict[str, frozenset[int]] = {}
        self._looking: set[str] = set()
        self._question = threading.Lock()
        self._is_out = False
        self._taking_back = 0
        self._doubted: set[str] = set()
        self._wake = threading.Event()
        self._log = structlog.get_logger("bridge.relay.watch")
        self.pulse = Pulse()
        self.stop = threading.Event()

    @property
    def is_out(self) -> bool:
        """Tell whether no broker answers."""
        return self._is_out

    def run(self) -> None:
        """Watch until stopped."""
        _apart(self._ask_on)
        while not self.stop.is_set():
            self.pulse.beat()
            self._wake.wait(TICK if not self._taking_back else TICK / 2)
            self._wake.clear()
            # Never behind a question that Kafka does not answer.
            self._take_back_before_expiry()
            # One topic that does not answer must not keep the others waiting.
            for destination in self._breakers.to_look_at():
                if self._admission.outage.is_set() or len(self._looking) >= _LOOKS:
                    break
                if destination not in self._looking:
                    self._looking.add(destination)
                    _apart(partial(self._look_apart, destination))
        self._topics.close()

    def _ask_on(self) -> None:
        """Ask Kafka about what does not move, or whether it answers again."""
        while not self.stop.wait(TICK):
            try:
                if self._is_out:
                    self._probe()
                else:
                    self._reread_limits()
                    self._find_stalls()
            except Exception:  # noqa: BLE001 - told, and asked again
                self._log.exception("asking Kafka failed")

    def look_soon(self) -> None:
        """Look at new destinations now; from any thread."""
        self._wake.set()

    def on_success(self, destination: str) -> None:
        """Hear of an acknowledgement; from the settler."""
        if self._breakers.succeed(destination):
            self._log.info("destination takes records again", destination=destination)
            self._admission.changed.set()

    def on_failure(self, destination: str, code: str, reason: str) -> None:
        """Hear of a refused record that may say more about its destination; from the settler."""
        if self._breakers.trip(destination, f"{code}: {reason}"):
            self._log.warning(
                "destination fails; nothing more of it is claimed until it takes records again",
                destination=destination,
                code=code,
                reason=reason,
            )

    def on_doubt(self, destination: str) -> None:
        """Hear of a batch that was refused for a record in it: the topic's limit may be new."""
        self._doubted.add(destination)

    def _reread_limits(self) -> None:
        while self._doubted:
            topic = self._router.route(self._doubted.pop()).topic
            self._topics.forget(topic)
            self._aim.learn(self._topics.look(topic, LOOK_TIMEOUT))

    def _look_apart(self, destination: str) -> None:
        try:
            self._look(destination)
        except Exception:  # noqa: BLE001 - see below
            # Told, and tried again: a stage of its own would end the relay for it.
            self._log.exception("looking at a topic failed", destination=destination)
            self._breakers.trip(destination, "the look at its topic failed")
        finally:
            self._looking.discard(destination)

    def _look(self, destination: str) -> None:
        """Look at the topic of a destination that is new or failing, and set its breaker."""
        route = self._router.route(destination)
        if route.problem is not None:
            self._breakers.close(destination)  # the publisher fails its rows, which takes no Kafka
            self._admission.changed.set()
            return
        state = self._topics.look(route.topic, LOOK_TIMEOUT)
        if state.condition is Condition.MISSING and self._create_missing:
            problem = self._topics.create(route.topic, LOOK_TIMEOUT)
            if problem is None:
                self._log.info("topic created", topic=route.topic)
                state = self._topics.look(route.topic, LOOK_TIMEOUT)
            else:
                state = dataclasses.replace(state, reason=f"it cannot be created: {problem}")
        if state.condition is Condition.UNREACHABLE and not self._cluster_answers():
            return
        self._aim.learn(state)
        if state.condition is Condition.PRESENT or (
            state.condition is Condition.MISSING and self._aim.fails_missing
        ):
            self._note_leaders(destination, state)
            self._breakers.close(destination)
            self._admission.changed.set()
        else:
            what = f"TOPIC_{state.condition.upper()}"
            self.on_failure(destination, what, f"topic {route.topic}: {state.reason or what}")

    def _note_leaders(self, destination: str, state: TopicState) -> None:
        before = self._leaderless.get(destination, frozenset())
        if state.leaderless == before:
            return
        if state.leaderless:
            self._leaderless[destination] = state.leaderless
            self._log.warning(
                "partitions have no leader; their rows wait, the others go on",
                topic=state.topic,
                partitions=sorted(state.leaderless),
            )
        else:
            del self._leaderless[destination]
            self._log.info("all partitions have leaders again", topic=state.topic)

    def _find_stalls(self) -> None:
        """Look at the topics of records that Kafka has not reported for long."""
        if self._flight.acks or not (self._leaderless or self._producers.holds_records()):
            return  # reports wait for the settler, or nothing waits for Kafka
        now = time.monotonic()
        slow = self._flight.slow_destinations(now - self._stall)
        for destination in sorted(slow | self._leaderless.keys()):
            if now - self._looked_at.get(destination, -math.inf) < _PATIENT_LOOK:
                continue
            self._looked_at[destination] = now
            account = self._flight.account(destination)
            still = account.awaited > 0 and now - account.moved_at > self._stall
            if still and not self._anything_moves(now) and not self._cluster_answers():
                return
            topic = self._router.route(destination).topic
            state = self._topics.look(topic, LOOK_TIMEOUT)
            if state.condition is not Condition.UNREACHABLE:
                self._aim.learn(state)
                self._note_leaders(destination, state)
            if state.leaderless and destination in slow:
                self._flight.put_aside(destination)
            elif still and self._flight.account(destination).moved_at == account.moved_at:
                # Leaders there are, yet nothing moves: a broker that hangs, too few replicas.
                self._flight.put_aside(destination)
                self.on_failure(destination, "STALLED", "no record is acknowledged")

    def _anything_moves(self, now: float) -> bool:
        """Tell whether any records were reported lately: then the cluster is there."""
        return any(now - one.moved_at < self._stall for _, one in self._flight.accounts())

    def _answers(self) -> bool:
        return self._topics.cluster_answers(_PROBE_TIMEOUT)

    def _cluster_answers(self) -> bool:
        """Ask the cluster and claim nothing meanwhile; without answer an outage begins."""
        with self._question:  # several looks may come to the same doubt
            if self._is_out:
                return False
            self._admission.outage.set()
            if self._answers():
                self._admission.outage.clear()
                self._admission.changed.set()
                return True
            self._is_out = True
            self._probe_wait = _FIRST_PROBE
            self._next_probe = time.monotonic() + self._probe_wait
        self._log.warning(
            "Kafka does not answer; nothing is claimed until it does, claimed rows stay with "
            "their producer",
            in_flight=self._flight.rows,
        )
        return False

    def _probe(self) -> None:
        if time.monotonic() < self._next_probe:
            return
        if not self._answers():
            self._probe_wait = min(2 * self._probe_wait, _LONGEST_PROBE)
            self._next_probe = time.monotonic() + self._probe_wait
            return
        self._is_out = False
        self._admission.outage.clear()
        self._admission.changed.set()
        self._log.info("Kafka answers again")

    def _take_back_before_expiry(self) -> None:
        """Take back what was not sent before the first record of an ordered row expires.

        Records expire one by one, each by its own age: after a long outage the older ones of a key
        would be gone when the younger ones are sent.
        """
        oldest = self._flight.oldest_ordered()
        age = 0.0 if oldest is None else time.monotonic() - oldest
        if age <= self._purge_age:
            if self._taking_back:
                self._taking_back = 0
                self._flight.freeze_lanes(frozen=False)
        elif not self._taking_back:
            # First nothing ordered may follow; a turn later, when the publisher has let go of the
            # record that it had in hand, what is there is taken back.
            self._taking_back = 1
            self._flight.freeze_lanes(frozen=True)
            self._log.warning("records waited long for Kafka; what was not sent is taken back")
            for destination in self._flight.slow_destinations(time.monotonic() - self._stall):
                self.on_failure(destination, "STALLED", "no record is acknowledged")
        elif self._taking_back == 1:
            self._taking_back = 2
            self._producers.purge()
        elif self._taking_back == 2 and age > self._retire_age:  # noqa: PLR2004 - the third turn
            self._taking_back = 3
            self._producers.retire()


def _apart(work: Callable[[], None]) -> None:
    """Do something in a thread that nobody waits for: Kafka may take its time to answer."""
    threading.Thread(target=work, name="outbox-bridge-look", daemon=True).start()
