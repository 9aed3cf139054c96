"""The demo that stays: real traffic, failures on purpose, and the console to look at them.

Orders and mails flow as in the other demo. `documents` goes to a topic with a small limit: every so
often a document is larger, its row ends FAILED and holds up its customer's later documents. After a
while the topic's limit is raised, so that a retry in the console helps.
"""

from __future__ import annotations

import base64
import contextlib
import random
import re
import sys
import time
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined] # public, though not marked so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from psycopg.types.json import Json

from bridge.database.connection import connect
from bridge.database.reading import translated
from bridge.demo.observer import SCHEMA
from bridge.demo.screen import Numbers
from bridge.demo.stage import build_stage, signals_end_in_order
from bridge.demo.topics import demo_topics
from bridge.errors import OutboxError
from bridge.local.process import LeashedProcess
from bridge.switches import limit

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    import psycopg

    from bridge.demo.screen import Screen
    from bridge.demo.stage import Stage
    from bridge.settings import Settings

_TICK_SECONDS = 0.05
_SAMPLE_SECONDS = 1.0
_ACT_MESSAGES = 1000
_RATE = 25.0
_FIRST_MESSAGES = 3000
_DOCUMENT_SECONDS = 2.0
_TOO_LARGE_EACH = 6
_SMALL_BYTES = 2_000
_LARGE_BYTES = 60_000
_TOPIC_LIMIT = 20_000
_CLIENT_LIMIT_BYTES = 1_200_000
"""The mock cluster knows no limits of topics; the client itself takes up to 1,000,000 bytes."""
_RAISED_AFTER_SECONDS = 120.0
_RAISED_LIMIT = "1000000"
_START_SECONDS = 60.0
_CUSTOMERS = 8
_MAILS_LATER = 12
_ANSWER_SECONDS = 15.0

_URL = re.compile(r"outbox-bridge console on (\S+)")


def run_showcase(settings: Settings, *, keep: bool, port: int, screen: Screen) -> None:
    """Play until KeyboardInterrupt; nothing that was started is left. Raises OutboxError."""
    with signals_end_in_order(), build_stage(settings, keep=keep, progress=screen.note) as stage:
        documents = f"{stage.prefix}documents"
        with (
            demo_topics(
                stage.parts.bootstrap_servers,
                [documents],
                is_real=stage.parts.is_real,
                remove=stage.parts.kafka is None and not keep,
                config={"max.message.bytes": str(_TOPIC_LIMIT)},
            ),
            connect(stage.database_url, stage="documents", relay_name="demo") as conn,
            translated(SCHEMA),
            _console(stage, port) as url,
        ):
            _Showcase(stage, conn, documents, screen).run(url)


@contextlib.contextmanager
def _console(stage: Stage, port: int) -> Any:
    """Run `outbox-bridge console` and give its URL."""
    log: Path = stage.folder / "console.log"
    process = LeashedProcess(
        [sys.executable, "-m", "bridge", "console", "--port", str(port)],
        log=log,
        environment=stage.environment,
    )
    try:
        until = time.monotonic() + _START_SECONDS
        while (match := _URL.search(log.read_text() if log.exists() else "")) is None:
            if not process.alive or time.monotonic() > until:
                raise OutboxError(f"the console did not start; {log} ends:\n{process.log_tail()}")
            time.sleep(_TICK_SECONDS)
        yield match[1]
    finally:
        process.stop()


class _Showcase:
    def __init__(
        self, stage: Stage, conn: psycopg.Connection[Any], documents: str, screen: Screen
    ) -> None:
        self._stage = stage
        self._conn = conn
        self._documents = documents
        self._screen = screen
        self._numbers = Numbers()
        self._random = random.Random(7)  # noqa: S311 - a repeatable mixture, nothing secret
        self._written = 0
        self._acts = 0

    def run(self, url: str) -> None:
        stage = self._stage
        for relay in stage.relays:
            relay.start()
        while not (stage.shop.facts.get("ready") and stage.consumer.facts.get("ready")):
            self._tick()
            time.sleep(_TICK_SECONDS)
        self._mails_for_later()
        limit(
            self._conn,
            self._documents,
            rows_per_second=50,
            reason="the archive takes 50 documents a second",
            actor="demo",
            source="demo",
        )
        self._write(_FIRST_MESSAGES, 0.0)
        self._screen.note(f"the console is on {url}")
        self._screen.note(
            "some documents are larger than their topic takes: look at Failures and Held keys; "
            f"in {_RAISED_AFTER_SECONDS:.0f} s the limit is raised, and a retry helps"
        )
        self._screen.note("Ctrl-C ends everything")
        began = time.monotonic()
        raised = not stage.parts.is_real
        next_document = next_sample = began
        while True:
            now = time.monotonic()
            self._tick()
            if stage.shop.facts.get("finished", 0) >= self._acts:
                self._write(_ACT_MESSAGES, _RATE)
            if now >= next_document:
                next_document = now + _DOCUMENT_SECONDS
                self._write_document()
            if now >= next_sample:
                next_sample = now + _SAMPLE_SECONDS
                self._show()
            if not raised and now > began + _RAISED_AFTER_SECONDS:
                raised = True
                self._raise_limit()
            time.sleep(_TICK_SECONDS)

    def _tick(self) -> None:
        for child in (self._stage.shop, self._stage.consumer):
            child.listen()
        for relay in self._stage.relays:
            relay.check()

    def _write(self, messages: int, rate: float) -> None:
        self._acts += 1
        self._stage.shop.send(act="steady", messages=messages, rate=rate, import_orders=0)

    def _write_document(self) -> None:
        self._written += 1
        too_large = self._written % _TOO_LARGE_EACH == 1
        size = _SMALL_BYTES
        if too_large:
            size = _LARGE_BYTES if self._stage.parts.is_real else _CLIENT_LIMIT_BYTES
        scan = base64.b64encode(self._random.randbytes(size * 3 // 4)).decode()
        customer = self._random.randrange(_CUSTOMERS)
        self._conn.execute(
            "insert into app_outbox (message_key, event_type, destination, ordering_key, "
            "payload_json, max_retry_count) values (%s, 'document.scanned', %s, %s, %s, 1)",
            [
                f"document-{self._written}",
                self._documents,
                f"customer-{customer}",
                Json({"document": self._written, "customer": customer, "scan": scan}),
            ],
        )

    def _mails_for_later(self) -> None:
        self._conn.execute(
            "insert into app_outbox (message_key, event_type, destination, payload_json, "
            "next_run_at) select 'reminder-' || n, 'mail.reminder', %s, "
            "json_build_object('template', 'reminder', 'cart', n), now() + n * interval '5 min' "
            "from generate_series(1, %s) as n",
            [f"{self._stage.prefix}mails", _MAILS_LATER],
        )

    def _show(self) -> None:
        numbers = self._numbers
        numbers.enqueued = int(self._stage.shop.facts.get("enqueued", 0)) + self._written
        numbers.total = numbers.enqueued
        numbers.sent = self._stage.observer.sent()
        numbers.received = int(self._stage.consumer.facts.get("distinct", 0))
        numbers.duplicates = int(self._stage.consumer.facts.get("duplicates", 0))
        numbers.relays = {relay.name: relay.state for relay in self._stage.relays}
        self._screen.show(numbers)

    def _raise_limit(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._stage.parts.bootstrap_servers})
        resource = ConfigResource(ResourceType.TOPIC, self._documents)
        resource.add_incremental_config(
            ConfigEntry(
                "max.message.bytes", _RAISED_LIMIT, incremental_operation=AlterConfigOpType.SET
            )
        )
        with contextlib.suppress(KafkaException):
            admin.incremental_alter_configs([resource])[resource].result(_ANSWER_SECONDS)
            self._screen.note(
                f"the topic {self._documents} takes larger records now: retry what failed"
            )
