"""A relay's way out to Kafka: producers, publisher and watch, put together from the settings."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import structlog

from bridge.errors import KafkaError
from bridge.kafka.producer import (
    check_reachable,
    create_producer,
    number,
    producer_settings,
)
from bridge.kafka.topics import Topics
from bridge.relay.payloads import Payloads
from bridge.relay.producers import Producers
from bridge.relay.publisher import Publisher
from bridge.relay.target import Aim
from bridge.relay.watch import Watch

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping

    from confluent_kafka import KafkaError as ClientError
    from confluent_kafka import Producer

    from bridge.database.session import Session
    from bridge.relay.admission import Admission
    from bridge.relay.breakers import Breakers
    from bridge.relay.flight import Flight
    from bridge.relay.registration import Registration
    from bridge.routing import Router
    from bridge.settings import Settings
    from bridge.telemetry.sending import SendSpans

_ANSWER = 5.0


class Outlet:
    """Makes the parts, and connects what one of them tells with the others.

    `on_failure` hears of an error that ends a thread which serves Kafka's reports. `spans`, if
    given, follows what is sent.
    """

    def __init__(
        self,
        settings: Settings,
        router: Router,
        flight: Flight,
        *,
        session: Session,
        registration: Registration,
        admission: Admission,
        breakers: Breakers,
        on_failure: Callable[[BaseException], None],
        spans: SendSpans | None = None,
    ) -> None:
        relay = settings.relay
        lifetime = settings.kafka.message_timeout_ms / 1000
        self._properties: dict[str, Any] = producer_settings(
            settings.kafka.bootstrap_servers,
            settings.kafka.properties,
            client_id=f"outbox-bridge-{relay.name}",
        )
        self._log = structlog.get_logger("bridge.relay")
        self.producers = Producers(
            self._create_producer, number(self._properties, "batch.size"), on_failure
        )
        aim = Aim(
            router,
            self.producers,
            flight,
            fail_missing=relay.missing_topic == "fail",
            max_bytes=number(self._properties, "message.max.bytes"),
        )
        self.payloads = Payloads(session)
        self.publisher = Publisher(
            self.producers,
            payloads=self.payloads,
            aim=aim,
            flight=flight,
            on_fatal=self.producers.end_fatal,
            max_age=relay.lease - relay.lease_margin - lifetime,
            registration=registration,
            spans=spans,
        )
        topics = Topics(self._properties, self.producers.main())
        self.producers.on_main = topics.use
        self.watch = Watch(
            topics,
            router,
            producers=self.producers,
            flight=flight,
            breakers=breakers,
            admission=admission,
            aim=aim,
            create_missing=relay.missing_topic == "create",
            record_timeout=lifetime,
        )
        admission.look_soon = self.watch.look_soon

    def await_kafka(
        self, stopping: threading.Event, patience: float, on_wait: Callable[[], None]
    ) -> bool:
        """Wait until a broker answers; False when stopped meanwhile. Says so once.

        Raises KafkaError when none has answered for `patience` seconds.
        """
        end = time.monotonic() + patience
        told = False
        while not stopping.is_set():
            try:
                check_reachable(self.producers.main(), _ANSWER)
            except KafkaError as error:
                if time.monotonic() > end:
                    raise
                if not told:
                    self._log.warning("waiting for Kafka; nothing is claimed", reason=str(error))
                    on_wait()
                    told = True
            else:
                return True
        return False

    def _create_producer(self, overrides: Mapping[str, Any]) -> Producer:
        return create_producer({**self._properties, **overrides}, on_error=self._heard)

    def _heard(self, error: ClientError) -> None:
        if error.fatal():
            self.producers.end_fatal(error.str())
        else:
            self._log.debug("kafka", code=error.name(), reason=error.str())
