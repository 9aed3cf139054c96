"""A relay's sign of life: its row, its session lock, its heartbeat."""

from __future__ import annotations

import math
import os
import select
import socket
import threading
import time
from itertools import islice
from typing import TYPE_CHECKING, Any

import orjson
import psycopg
import structlog

from bridge.database.session import ConnectionLost, Session
from bridge.database.template import advisory_class
from bridge.errors import DatabaseError
from bridge.relay.vitals import Pulse
from bridge.telemetry.context import uninstrumented
from bridge.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.database.session import SessionObserver
    from bridge.settings import Settings

_SLICE = 0.2
_LONGEST_WAIT = 0.5
"""Seconds between two attempts to connect again: others bury a relay after two without its lock."""
_SHORTEST_ANSWER = 5.0
_MOST_FAILING = 100
_LONGEST_REASON = 200
"""Failing destinations, and characters of a reason, told with the heartbeat: the row stays "
"small."""


class Registration:
    """Registers the relay, holds its session lock and renews the heartbeat in a thread.

    While `alive` is set, others leave this relay's claims alone. When the session is lost, `alive`
    is cleared until the same identity is taken up again, or, where others have buried it meanwhile,
    a new one: claims made under the old id are theirs to rescue then.

    `failing` is asked with each heartbeat for the destinations that fail, and why: people see it.

    Behind a transaction pooler there is no session lock to hold. The row says so (`has_lock`), and
    others go by the lease alone.
    """

    def __init__(
        self,
        settings: Settings,
        relay_name: str,
        url: str | None,
        on_failure: Callable[[str, BaseException], None] | None = None,
        observer: SessionObserver | None = None,
        *,
        failing: Callable[[], dict[str, str]] = dict,
    ) -> None:
        self._settings = settings
        self._failing = failing
        self._on_failure = on_failure
        self._relay_name = relay_name
        self._class = advisory_class("relay", settings.database.schema_name)
        self._session = Session(
            url,
            schema=settings.database.schema_name,
            stage="heartbeat",
            relay_name=relay_name,
            lock_timeout=5.0,
            observer=observer,
            # Two more heartbeats fit into the lease after one that got no answer.
            answer_timeout=max(_SHORTEST_ANSWER, settings.relay.lease / 3),
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=uninstrumented()(self._live), name="heartbeat", daemon=True
        )
        self._log = structlog.get_logger("bridge.relay.heartbeat")
        self._beaten = 0.0
        self.relay_id = 0
        self.registered_at = -math.inf
        """Monotonic time before this identity began: what was claimed earlier is others' now."""
        self.alive = threading.Event()
        self.pulse = Pulse()
        self.stopping = False

    @property
    def session(self) -> Session:
        """The session of the heartbeat; for its thread alone."""
        return self._session

    def start(self) -> None:
        """Register and start beating; raises DatabaseError."""
        self._session.open()
        if self._session.is_pooled:
            self._tell_of_the_pooler()
        self._register()
        self._thread.start()

    def may_claim(self, timeout: float) -> bool:
        """Wait until this relay may claim; False after `timeout` seconds.

        It must be alive, and no heartbeat older than the lease without its margin: a relay that was
        frozen may have been declared dead, and does not know it before its next heartbeat.
        """
        if not self.alive.wait(timeout):
            return False
        relay = self._settings.relay
        if time.monotonic() - self._beaten < relay.lease - relay.lease_margin:
            return True
        self._stop.wait(min(timeout, relay.idle_poll))
        return False

    def leave(self) -> None:
        """Announce that this relay claims no more, so that others share its lanes."""
        self.stopping = True

    def stop(self) -> None:
        """Stop beating, remove the relay's row where no claim of it is left, let the lock go."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()  # the caller does not wait for ever where the database hangs
        try:
            self._session.run("unregister_relay", {"relay_id": self.relay_id})
        except (DatabaseError, psycopg.Error) as error:
            # Others find the lock free and bury the relay; nothing is lost by a missing good-bye.
            self._log.warning("could not unregister", reason=str(error))
        finally:
            self.alive.clear()
            self._session.close()

    def _register(self) -> None:
        self._beaten = time.monotonic()
        if self.relay_id and self._take_up():
            self.alive.set()
            return

        def register() -> int:
            relay_id: int = self._session.value(
                "register_relay",
                {
                    "relay_name": self._relay_name,
                    "host": socket.gethostname()[:255],
                    "pid": os.getpid(),
                    "version": __version__,
                    "lease_seconds": max(1, int(self._settings.relay.lease)),
                    "has_lock": not self._session.is_pooled,
                },
            )
            self._lock(relay_id)
            return relay_id

        self.relay_id = self._session.in_transaction(register)
        self.registered_at = self._beaten
        self.alive.set()

    def _take_up(self) -> bool:
        """Take the old identity up again; False when others have buried it or are about to."""
        session = self._session

        def take_up() -> bool:
            if not session.rows("beat_relay", self._sign_of_life()):
                return False
            self._lock(self.relay_id)
            return True

        try:
            return session.in_transaction(take_up)
        except psycopg.errors.LockNotAvailable:
            return False

    def _lock(self, relay_id: int) -> None:
        if not self._session.is_pooled:
            key = {"relay_class": self._class, "relay_id": relay_id}
            self._session.rows("lock_relay", key)

    def _sign_of_life(self) -> dict[str, Any]:
        failing = {
            name: reason.replace("\0", " ")[:_LONGEST_REASON]
            for name, reason in islice(self._failing().items(), _MOST_FAILING)
        }
        return {
            "relay_id": self.relay_id,
            "stopping": self.stopping,
            "has_lock": not self._session.is_pooled,
            "failing": orjson.dumps(failing).decode(),
        }

    def _tell_of_the_pooler(self) -> None:
        given = self._settings.database.direct_url is not None
        self._log.warning(
            "behind a connection pooler: no wake-up by NOTIFY, rows are found by polling; if this "
            "relay dies, its claims move on after the lease instead of within seconds",
            advice=(
                "database.direct_url leads through a pooler, too; let it lead past it"
                if given
                else "set OUTBOX_BRIDGE_DATABASE_DIRECT_URL to a URL that leads past the pooler"
            ),
            lease_seconds=self._settings.relay.lease,
        )

    def _live(self) -> None:
        try:
            self._beat()
            self.pulse.rest()
        except BaseException as error:
            self.alive.clear()
            if self._on_failure is None:
                raise
            self._on_failure("heartbeat", error)

    def _beat(self) -> None:
        interval = self._settings.relay.heartbeat_interval
        while not self._stop.is_set():
            try:
                self._pause(interval)
                if self._stop.is_set():
                    return
                started = time.monotonic()
                if self._session.rows("beat_relay", self._sign_of_life()):
                    self._beaten = started
                else:
                    self.alive.clear()
                    self._log.warning(
                        "others declared this relay dead; it registers anew", relay_id=self.relay_id
                    )
                    self.relay_id = 0
                    self._register()
            except psycopg.errors.LockNotAvailable:
                continue
            except (ConnectionLost, psycopg.Error):
                # Whoever lost the database, its state tells it once for the whole relay.
                self.alive.clear()
                self._come_back()

    def _come_back(self) -> None:
        while not self._stop.is_set():
            self.pulse.beat()
            if not self._session.reopen(self._stop, _LONGEST_WAIT):
                return
            before = self.relay_id
            try:
                self._register()
            except (DatabaseError, psycopg.Error) as error:
                self._log.debug("could not register again", reason=str(error))
                self._stop.wait(1.0)
                continue
            if self.relay_id != before:
                self._log.warning(
                    "others took this relay for dead meanwhile; it is registered anew",
                    relay_id=self.relay_id,
                    before=before,
                )
            return

    def _pause(self, seconds: float) -> None:
        """Wait, but not longer than the connection lives: others see its end at once, too."""
        end = time.monotonic() + seconds
        while not self._stop.is_set() and time.monotonic() < end:
            self.pulse.beat()
            readable, _, _ = select.select([self._session.connection.fileno()], [], [], _SLICE)
            if readable:
                return
