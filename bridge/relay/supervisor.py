"""Composes the stages into one relay process, and stops them in order."""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING

import psycopg
import structlog

from bridge.database.migrations import Migrator
from bridge.database.session import Session
from bridge.errors import DatabaseError, OutboxError, SchemaError
from bridge.relay import signals
from bridge.relay.admission import Admission
from bridge.relay.breakers import Breakers
from bridge.relay.claimer import Claimer, Run
from bridge.relay.flight import Flight
from bridge.relay.gauges import Parts
from bridge.relay.maintenance import Maintenance
from bridge.relay.notifier import Notifier
from bridge.relay.orphans import take_claim_back
from bridge.relay.outages import DatabaseState
from bridge.relay.outlet import Outlet
from bridge.relay.probes import Probes, frozen_after
from bridge.relay.registration import Registration
from bridge.relay.rescuer import Rescuer
from bridge.relay.settlement import Settlement
from bridge.relay.settler import Settler
from bridge.relay.tally import RelayReport
from bridge.relay.vitals import Vitals
from bridge.retry import Backoff
from bridge.settings import service_manager
from bridge.telemetry.context import is_loaded, uninstrumented

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.relay.exposure import Exposure
    from bridge.relay.publisher import Publisher
    from bridge.settings import Settings
    from bridge.telemetry.sending import SendSpans

_TICK = 0.1
_PURGE_WAIT = 1.0
_LEAVE_WAIT = 5.0
"""Seconds beyond the drain time-out, or the second signal, that the end itself may take."""
_SPANS_WAIT = 1.0
"""Seconds that the end waits for spans to be made; they wait for nobody."""
_SHORTEST_FLUSH = 0.5
_LONGEST_FLUSH = 5.0
"""Seconds that the end waits for telemetry to be sent; a receiver that is down costs no more."""
_KAFKA_PATIENCE = 30.0
"""Seconds that a run with an end waits for Kafka to answer at all; others wait for ever."""


def run_relay(
    settings: Settings,
    *,
    until_empty: bool = False,
    once: bool = False,
    limit: int | None = None,
    flush: Callable[[float], object] | None = None,
) -> RelayReport:
    """Run one relay in this process until its end or a signal.

    The first SIGTERM or SIGINT drains, the second forces. `until_empty` ends when no row is due,
    none is in flight and all are settled; `once` claims one batch of at most `limit` rows. `flush`
    is called at the end with the seconds it may take to send telemetry. Raises OutboxError where
    the relay cannot start or go on; what it had claimed is given back.
    """
    relay = Relay(settings, Run(until_empty=until_empty, once=once, limit=limit))
    with signals.obeyed_by(relay), uninstrumented():
        try:
            return relay.run()
        finally:
            if flush is not None:
                flush(relay.time_to_flush())


def _spans(relay: str) -> SendSpans | None:
    if not is_loaded():
        return None
    from bridge.telemetry.sending import send_spans  # noqa: PLC0415 - only where it is in use

    return send_spans(relay)


class Relay:
    """One relay: `run` blocks until it has stopped and returns what it did.

    `stop()` drains: claim nothing more, give back what was not handed to Kafka, await and settle
    the rest for at most the drain time-out. `force()` cuts that short. Both may be called from any
    thread or signal handler, and more than once.
    """

    def __init__(self, settings: Settings, run: Run) -> None:
        relay = settings.relay
        self._settings = settings
        self._bounded = run.until_empty or run.once
        self._log = structlog.get_logger("bridge.relay")
        self._report = RelayReport()
        self._stopping = threading.Event()
        self._claimed_all = threading.Event()
        self._latest = math.inf
        self._stuck = False
        self._error: BaseException | None = None
        self._flight = Flight(relay.max_inflight_rows, relay.max_inflight_bytes)
        self._stages: list[threading.Thread] = []
        self._vitals = Vitals()
        self._probes = Probes(
            self._vitals, frozen_after(settings), ended=self._ended, obstacles=self._obstacles
        )
        self._notifier = Notifier(service_manager(), lambda: not self._probes.live())
        self._database = DatabaseState()
        self._breakers = Breakers()
        self._registration = Registration(
            settings,
            relay.name,
            self._url(direct=True),
            on_failure=self._fail,
            observer=self._database,
            failing=self._breakers.failing,
        )
        self._claims = self._session("claim", opened=self._listen)
        self._settles = self._session("settle")
        self._payloads = self._session("publish")
        self._chores = self._session("maintain")
        self._admission = Admission(self._flight, self._breakers)
        self._claimer = Claimer(
            settings,
            self._claims,
            self._registration,
            self._flight,
            run,
            admission=self._admission,
        )
        retry = settings.retry
        self._router = settings.router()
        self._settlement = Settlement(
            self._settles,
            Backoff(base=retry.base, cap=retry.cap, jitter=retry.jitter),
            self._router,
        )
        self._settlement.guard = self._claimer.holds.guard
        rescuer = Rescuer(
            settings, self._chores, self._registration, self._report, self._claimer.walk_soon
        )
        self._maintenance = Maintenance(settings, self._chores, self._registration, rescuer)
        self._spans = _spans(relay.name)
        self._watch_over_threads()
        # A run with an end is over before anybody asks, and another relay may have the port.
        is_asked = settings.http.port is not None and not self._bounded
        self._exposure = self._expose() if is_asked else None

    def _watch_over_threads(self) -> None:
        vitals = self._vitals
        vitals.watch("claim", self._claimer.pulse, self._claims)
        vitals.watch("maintain", self._maintenance.pulse, self._chores)
        vitals.watch("heartbeat", self._registration.pulse, self._registration.session)

    def _expose(self) -> Exposure:
        # Loads the OpenTelemetry SDK, which a relay without port need not carry.
        from bridge.relay.exposure import Exposure  # noqa: PLC0415 - see above

        parts = Parts(
            report=self._report,
            claimer=self._claimer,
            flight=self._flight,
            breakers=self._breakers,
            database=self._database,
            vitals=self._vitals,
            probes=self._probes,
            is_out=self._is_out,
        )
        return Exposure(self._settings, parts, self._maintenance, self._router)

    @property
    def is_stopping(self) -> bool:
        """Tell whether a stop was asked for."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Begin to drain."""
        if not self._stopping.is_set():
            self._latest = time.monotonic() + self._settings.relay.drain_timeout
            self._notifier.stopping()
        self._stopping.set()

    def force(self) -> None:
        """Stop without waiting for acknowledgements."""
        self._latest = min(self._latest, time.monotonic())
        self._stopping.set()

    def time_to_flush(self) -> float:
        """Return how many seconds telemetry may take at the end: of the drain time-out, few."""
        left = self._latest - time.monotonic()
        return min(_LONGEST_FLUSH, max(_SHORTEST_FLUSH, left))

    def run(self) -> RelayReport:
        """Run until stopped; raises OutboxError where the relay cannot start or go on."""
        sessions = (self._claims, self._settles, self._payloads, self._chores)
        self._notifier.start()
        try:
            if self._exposure is not None:
                self._exposure.open()
            for session in sessions:
                session.open()
            self._verify_database()
            self._outlet = Outlet(
                self._settings,
                self._router,
                self._flight,
                session=self._payloads,
                registration=self._registration,
                admission=self._admission,
                breakers=self._breakers,
                on_failure=lambda error: self._fail("poll", error),
                spans=self._spans,
            )
            if self._await_kafka():
                self._registration.start()
                if self._exposure is not None:
                    self._exposure.begin(self._chores)
                self._notifier.ready("sending")
                self._log.info(
                    "relay started",
                    relay=self._settings.relay.name,
                    relay_id=self._registration.relay_id,
                )
                self._probes.has_started = True
                try:
                    self._work()
                finally:
                    self._await(self._thread("leave", self._registration.stop))
            if self._bounded and self._error is None and not self._stuck:
                self._report.later = self._chores.value("count_later")
        finally:
            if self._exposure is not None:
                self._exposure.close()
            self._notifier.close()
            self._database.stop()
            for session in () if self._stuck else sessions:
                session.close()
        if self._error is not None:
            raise self._error
        self._log.info("relay stopped", **self._report.as_dict())
        return self._report

    def _await_kafka(self) -> bool:
        return self._outlet.await_kafka(
            self._stopping,
            _KAFKA_PATIENCE if self._bounded else math.inf,
            lambda: self._notifier.status("waiting for Kafka"),
        )

    def _verify_database(self) -> None:
        """Check encoding and schema, triggers included; raises SchemaError with the next step."""
        connection = self._claims.connection
        if connection.info.parameter_status("server_encoding") == "SQL_ASCII":
            raise SchemaError(
                "the database has encoding SQL_ASCII, which lets broken text in that no relay can "
                "read; move it to a database created with encoding UTF8"
            )
        Migrator(connection, self._settings.database.schema_name).verify()

    def _work(self) -> None:
        relay = self._settings.relay
        outlet, watch = self._outlet, self._outlet.watch
        if self._spans is not None:
            self._spans.start()
        settler = Settler(
            self._settlement,
            self._flight,
            self._report,
            self._settles.reopen,
            interval=relay.settle_interval,
            rows=relay.settle_rows,
            on_success=watch.on_success,
            on_failure=watch.on_failure,
            on_doubt=watch.on_doubt,
            meter=self._exposure.meter if self._exposure is not None else None,
        )
        if self._exposure is not None:
            outlet.publisher.meter = self._exposure.meter
        self._vitals.watch("settle", settler.pulse, self._settles)
        self._vitals.watch("publish", outlet.publisher.pulse, self._payloads)
        self._vitals.watch("watch", watch.pulse)
        self._vitals.watch_all(outlet.producers.pulses)
        watching = self._thread("watch", watch.run)
        claim = self._thread("claim", self._claimer.run, at_end=self._claimed_all.set)
        publish = self._thread("publish", outlet.publisher.run)
        settle = self._thread("settle", settler.run)
        maintain = self._thread("maintain", self._maintenance.run)
        self._stages += (watching, claim, publish, settle, maintain)
        while not (self._stopping.is_set() or self._claimed_all.wait(_TICK)):
            pass
        if self._stopping.is_set():
            self._log.info("relay stopping")
        self._registration.leave()
        self._claimer.stop.set()
        self._await(claim)
        drained = self._drain(outlet.publisher)
        self._flight.to_publish.put(None)
        if drained:
            self._await(publish)
            settler.draining.set()
        else:
            settler.give_up.set()
        self._await(settle)
        outlet.payloads.end()
        watch.stop.set()
        self._await(watching)
        outlet.producers.finish()
        for thread in outlet.producers.threads():
            self._await(thread)
        if self._spans is not None:
            self._spans.finish(_SPANS_WAIT)
        self._maintenance.stop.set()
        self._await(maintain)
        if not drained:
            self._await(self._thread("give-back", self._give_back_the_rest))
        self._report.forced = self._stuck or not drained

    def _ended(self) -> list[str]:
        """Name the stages that have ended and should go on."""
        if self.is_stopping or self._claimed_all.is_set():
            return []
        return [stage.name for stage in self._stages if not stage.is_alive()]

    def _is_out(self) -> bool:
        return self._probes.has_started and self._outlet.watch.is_out

    def _obstacles(self) -> list[str]:
        """Tell what keeps a relay that has started from sending."""
        found = ["stopping"] if self.is_stopping else []
        if not self._registration.alive.is_set():
            found.append("not registered: its heartbeat session is lost")
        if self._database.is_lost:
            found.append("database lost, connecting again")
        if self._is_out():
            found.append("Kafka does not answer")
        return found

    def _await(self, stage: threading.Thread) -> None:
        """Wait for the end of a stage; not for ever where the database hangs, once told to stop."""
        while stage.is_alive():
            late = time.monotonic() - self._latest
            if late > _LEAVE_WAIT or (late > _TICK and self._stuck):
                if not self._stuck:
                    self._log.warning("the database does not answer; others take the claims back")
                self._stuck = True
                return
            stage.join(_TICK)

    def _drain(self, publisher: Publisher) -> bool:
        """Wait until everything in flight is settled; False when something had to be left."""
        while self._flight.rows:
            if self._stopping.is_set():
                publisher.give_back()
            now = time.monotonic()
            if now > self._latest:
                break
            self._flight.wait_until_empty(now + _TICK)
        if not self._flight.rows:
            return True
        publisher.give_back()
        publisher.purge()
        return self._flight.wait_until_empty(time.monotonic() + _PURGE_WAIT)

    def _give_back_the_rest(self) -> None:
        """Give back, uncharged, what Kafka may or may not have: others send it again, same key."""
        rescued = 0
        try:
            for batch in self._flight.batches():
                rescued += take_claim_back(self._settles, batch.claim_id)
        except (DatabaseError, psycopg.Error) as error:
            self._log.warning("claims are left to be rescued by others", reason=str(error))
        self._log.warning("stopped before everything was acknowledged", given_back=rescued)

    def _thread(
        self, name: str, work: Callable[[], None], at_end: Callable[[], None] | None = None
    ) -> threading.Thread:
        """Start a stage; an error that it does not handle itself ends the relay, in order."""

        def stage() -> None:
            try:
                with uninstrumented():
                    work()
            except BaseException as error:  # noqa: BLE001 - a stage must never die silently
                self._fail(name, error)
            finally:
                self._vitals.ended(name)
                if at_end is not None:
                    at_end()

        thread = threading.Thread(target=stage, name=f"outbox-bridge-{name}", daemon=True)
        thread.start()
        return thread

    def _fail(self, stage: str, error: BaseException) -> None:
        self._log.error("stage failed", stage=stage, reason=str(error), exc_info=error)
        if self._error is None:
            known = isinstance(error, OutboxError)
            self._error = error if known else OutboxError(f"the {stage} stage failed: {error!r}")
            self._error.__cause__ = error if not known else error.__cause__
        if stage in {"publish", "poll", "settle"}:
            self.force()
        self.stop()

    def _session(self, stage: str, opened: Callable[[Session], None] | None = None) -> Session:
        return Session(
            self._url(direct=stage == "claim"),
            schema=self._settings.database.schema_name,
            stage=stage,
            relay_name=self._settings.relay.name,
            lock_timeout=self._settings.relay.lock_timeout,
            opened=opened,
            observer=self._database,
            # What a claim or an outcome has waited for that long comes too late for its lease.
            answer_timeout=max(
                5.0, self._settings.relay.lease / (0.4 if stage == "maintain" else 2)
            ),
        )

    def _listen(self, session: Session) -> None:
        self._claimer.listen(session)

    def _url(self, *, direct: bool = False) -> str | None:
        database = self._settings.database
        url = database.direct_url if direct and database.direct_url is not None else database.url
        return url.get_secret_value() if url is not None else None
