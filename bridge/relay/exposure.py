"""What a relay shows of itself: probes and metrics on one port."""

from __future__ import annotations

from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING

import psycopg

from bridge.database.session import ConnectionLost
from bridge.relay.database_clock import INTERVAL, DatabaseClock
from bridge.relay.endpoint import PLAIN, Answer, Endpoint
from bridge.relay.gauges import BacklogGauges, Parts, RelayGauges
from bridge.relay.meter import Meter
from bridge.relay.sampler import LEAD_INTERVAL, Sampler
from bridge.telemetry.labels import DestinationLabels
from bridge.telemetry.metrics import Instruments

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.database.session import Session
    from bridge.relay.maintenance import Maintenance
    from bridge.routing import Router
    from bridge.settings import Settings


class Exposure:
    """Joins port, instruments and sampler of one relay.

    `meter` is for the hot path. `open` before anything else, so that probes are answered while the
    relay waits for its servers; `begin` before the stages start; `close` last.
    """

    def __init__(
        self, settings: Settings, parts: Parts, maintenance: Maintenance, router: Router
    ) -> None:
        self._instruments = Instruments(settings.relay.name)
        labels = DestinationLabels(settings.metrics.max_destinations, router.exact_destinations())
        self._clock = DatabaseClock()
        self._sampler = Sampler(settings)
        self._maintenance = maintenance
        self.meter = Meter(self._instruments, labels, router, self._clock)
        RelayGauges(parts, labels).register(self._instruments)
        BacklogGauges(self._sampler, labels).register(self._instruments)
        probes = parts.probes
        self._endpoint = Endpoint(
            settings.http.host,
            settings.http.port or 0,
            {
                "/livez": _probe(probes.live),
                "/readyz": _probe(probes.ready),
                "/startupz": _probe(probes.started),
                "/metrics": self._metrics,
            },
        )

    def open(self) -> None:
        """Listen; raises OutboxError where the port cannot be had."""
        self._endpoint.open()

    def begin(self, session: Session) -> None:
        """Read the database's clock, take on the duties and start to sample."""

        def read_clock() -> None:
            self._clock.read(session)

        def follow_the_leader() -> None:
            self._sampler.lead(leads=self._maintenance.leads())

        # Where it fails the duty comes again; until then no row's way is measured.
        with suppress(ConnectionLost, psycopg.Error):
            read_clock()
        self._maintenance.add_duty("clock", INTERVAL, read_clock)
        self._maintenance.add_duty("lead", LEAD_INTERVAL, follow_the_leader)
        self._sampler.start()

    def close(self) -> None:
        """End everything; safe to call twice, or without `open` and `begin`."""
        self._sampler.stop()
        self._endpoint.close()
        self._instruments.shutdown()

    def _metrics(self, accept: str) -> Answer:
        content_type, body = self._instruments.expose(accept)
        return Answer(HTTPStatus.OK, content_type, body)


def _probe(ask: Callable[[], list[str]]) -> Callable[[str], Answer]:
    def answer(_accept: str) -> Answer:
        problems = ask()
        status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
        return Answer(status, PLAIN, ("\n".join(problems or ["ok"]) + "\n").encode())

    return answer
