"""The background duties of a relay, on one thread and one connection."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
import structlog

from bridge.database.session import ConnectionLost, Session
from bridge.database.template import advisory_class
from bridge.relay.reconciler import Reconciler

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.relay.registration import Registration
    from bridge.relay.rescuer import Rescuer
    from bridge.settings import Settings

ROLL_UP_INTERVAL = 60.0
"""Seconds between two roll-ups of the counters."""


@dataclass(slots=True)
class _Duty:
    name: str
    interval: float
    work: Callable[[], None]
    due: float


class Maintenance:
    """Rescues each second; rolls counters up and reconciles as the one relay that does it now."""

    def __init__(
        self, settings: Settings, session: Session, registration: Registration, rescuer: Rescuer
    ) -> None:
        now = time.monotonic()
        relay = settings.relay
        self._session = session
        self._registration = registration
        self._schema = settings.database.schema_name
        self._reconciler = Reconciler(session)
        self._duties = [
            _Duty("rescue", relay.rescue_interval, rescuer.rescue, now),
            _Duty("roll-up", ROLL_UP_INTERVAL, self._roll_up, now + ROLL_UP_INTERVAL),
            _Duty(
                "reconcile",
                relay.reconcile_interval,
                self._reconcile,
                now + relay.reconcile_interval,
            ),
        ]
        self._log = structlog.get_logger("bridge.relay.maintenance")
        self.stop = threading.Event()

    def run(self) -> None:
        """Do the duties until stopped; an error of one is logged and it is tried again later."""
        while not self.stop.is_set():
            now = time.monotonic()
            for duty in self._duties:
                if duty.due <= now and self._registration.alive.is_set():
                    duty.due = now + duty.interval
                    self._do(duty)
            self.stop.wait(
                max(0.0, min(duty.due for duty in self._duties) - time.monotonic()) or 0.1
            )

    def _do(self, duty: _Duty) -> None:
        try:
            duty.work()
        except ConnectionLost as error:
            self._log.warning("database connection lost", reason=str(error))
            if self._session.reopen(self.stop, self._told):
                self._log.info("database connection back")
        except psycopg.Error as error:
            self._log.warning("duty failed, tried again later", duty=duty.name, reason=str(error))

    def _told(self, error: Exception) -> None:
        self._log.warning("database unreachable for maintenance", reason=str(error))

    def _as_leader(self, duty: str, work: Callable[[], None]) -> None:
        parameters = {"duty_class": advisory_class(duty, self._schema)}

        def lead() -> None:
            if self._session.rows("lock_leader", parameters)[0][0]:
                work()

        self._session.in_transaction(lead)

    def _roll_up(self) -> None:
        def roll_up() -> None:
            self._session.run("roll_up_counters")

        self._as_leader("roll-up", roll_up)

    def _reconcile(self) -> None:
        # Steps commit one by one, so the lock is the session's, and it is given back in the end.
        parameters = {"duty_class": advisory_class("reconcile", self._schema)}
        if not self._session.rows("try_duty", parameters)[0][0]:
            return
        try:
            repair = self._reconciler.reconcile(lambda: not self.stop.is_set())
        finally:
            self._session.rows("give_duty", parameters)
        if repair.queued or repair.released or repair.adopted:
            self._log.warning(
                "rows were out of step with the side tables and are put right",
                queued=repair.queued,
                released=repair.released,
                keys_without_hold=repair.adopted,
            )
