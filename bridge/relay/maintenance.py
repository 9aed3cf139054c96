"""The background duties of a relay, on one thread and one connection."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
import structlog

from bridge.database.connection import first_line
from bridge.database.session import BUSY, PASSING, ConnectionLost, Session
from bridge.database.template import advisory_class
from bridge.errors import OutboxError
from bridge.relay.pruner import DAY, Pruner
from bridge.relay.reconciler import Reconciler
from bridge.relay.vitals import Pulse

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.relay.registration import Registration
    from bridge.relay.rescuer import Rescuer
    from bridge.settings import Settings

ROLL_UP_INTERVAL = 60.0
"""Seconds between two roll-ups of the counters."""


@dataclass(slots=True)
class _Duty:
    """`work` may return after how many seconds it wants to be called again, else `interval`."""

    name: str
    interval: float
    work: Callable[[], float | None]
    due: float
    failing: bool = False


class Maintenance:
    """Rescues each second; rolls counters up, prunes and reconciles as the one relay that does."""

    def __init__(
        self, settings: Settings, session: Session, registration: Registration, rescuer: Rescuer
    ) -> None:
        now = time.monotonic()
        relay, retention = settings.relay, settings.retention
        self._session = session
        self._registration = registration
        self._schema = settings.database.schema_name
        self._reconciler = Reconciler(session)
        self._pruner = Pruner(session, retention)
        reconcile, prune = relay.reconcile_interval, retention.interval
        self._duties = [
            _Duty("rescue", relay.rescue_interval, rescuer.rescue, now),
            _Duty("roll-up", ROLL_UP_INTERVAL, self._roll_up, now + ROLL_UP_INTERVAL),
            _Duty("prune", prune, self._prune, now + min(prune, ROLL_UP_INTERVAL)),
            _Duty("tidy", DAY, self._tidy, now + 2 * ROLL_UP_INTERVAL),
            _Duty("reconcile", reconcile, self._reconcile, now + reconcile),
        ]
        self._log = structlog.get_logger("bridge.relay.maintenance")
        self.pulse = Pulse()
        self.stop = threading.Event()

    def add_duty(self, name: str, interval: float, work: Callable[[], float | None]) -> None:
        """Take on another duty, first done at once; before `run`."""
        self._duties.append(_Duty(name, interval, work, time.monotonic()))

    def run(self) -> None:
        """Do the duties until stopped; an error of one is logged once and it is tried again."""
        while not self.stop.is_set():
            now = time.monotonic()
            for duty in self._duties:
                self.pulse.beat()
                if duty.due <= now and self._registration.alive.is_set():
                    duty.due = now + duty.interval
                    self._do(duty)
            self.pulse.rest()
            self.stop.wait(
                max(0.0, min(duty.due for duty in self._duties) - time.monotonic()) or 0.1
            )

    def _do(self, duty: _Duty) -> None:
        try:
            again = duty.work()
        except ConnectionLost:
            self._session.reopen(self.stop)
            return
        except (*BUSY, *PASSING):
            return  # the session's observer tells of it, once
        except (psycopg.Error, OutboxError) as error:
            if not duty.failing:
                self._log.warning(
                    "duty failed, tried again", duty=duty.name, reason=first_line(error)
                )
            duty.failing = True
            return
        if duty.failing:
            self._log.info("duty works again", duty=duty.name)
            duty.failing = False
        if again is not None:
            duty.due = time.monotonic() + again

    def _roll_up(self) -> None:
        parameters = {"duty_class": advisory_class("roll-up", self._schema)}

        def roll_up() -> None:
            if self._session.rows("lock_leader", parameters)[0][0]:
                self._session.run("roll_up_counters")

        self._session.in_transaction(roll_up)

    def leads(self) -> bool:
        """Ask whether this relay does what one does for all; by the thread of the duties."""
        leader = self._session.value("find_leader")
        return bool(leader == self._registration.relay_id)

    def _prune(self) -> float | None:
        """Do one step of a round, so that rescue is never held up by it."""
        if not self._pruner.is_amid_a_round and not self.leads():
            return None
        return self._pruner.go_on()

    def _tidy(self) -> None:
        if self.leads():
            self._pruner.tidy()

    def _reconcile(self) -> None:
        if not self.leads():
            return
        repair = self._reconciler.reconcile(lambda: not self.stop.is_set())
        if repair.queued or repair.released or repair.adopted:
            self._log.warning(
                "rows were out of step with the side tables and are put right",
                queued=repair.queued,
                released=repair.released,
                keys_without_hold=repair.adopted,
            )
