"""`metrics`: what a relay's metrics cost: the meter alone, and a drain with and without them."""

from __future__ import annotations

import random
import re
import struct
import time
import urllib.request
from collections import Counter
from typing import TYPE_CHECKING, Any

from bridge.relay.batch import Batch
from bridge.relay.database_clock import DatabaseClock
from bridge.relay.meter import Meter
from bridge.routing import Router
from bridge.telemetry.labels import DestinationLabels
from bridge.telemetry.metrics import Instruments
from tests.bench import outbox
from tests.bench.drains import read_topic
from tests.bench.figures import RATIO, BenchError, Findings, at_least, at_most, ratios
from tests.bench.relay_process import RelayProcess, Usage
from tests.bench.topic import await_records

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.lab import Lab
    from tests.bench.sizes import Sizes

_BATCH = 1000
_BATCHES = 200
_SCRAPE_SECONDS = 2.0
"""More often than any Prometheus asks."""
_SLOWEST = 1_000


def run(lab: Lab, sizes: Sizes, peer: Path | None) -> Findings:
    """Measure the meter alone, then let drains with and without metrics take turns."""
    del peer
    found = Findings("metrics")
    lab.progress("metrics: the meter alone")
    backlog = [_meter_cost(0.0) for _ in range(5)]
    found.add("meter, rows of a batch in one bucket", backlog, "µs a row", at_most(0.5))
    mixed = [_meter_cost(1.0) for _ in range(5)]
    found.add("meter, rows of a batch over all buckets", mixed, "µs a row")
    found.add("the time of an acknowledgement", [_clock_cost() for _ in range(5)], "µs a row")
    single = [_record_cost() for _ in range(5)]
    found.add("OpenTelemetry's histogram, row by row", single, "µs a row")
    rates: dict[bool, list[float]] = {False: [], True: []}
    cpu: dict[bool, list[float]] = {False: [], True: []}
    for number in range(sizes.pairs):
        for metered in (False, True) if number % 2 == 0 else (True, False):
            lab.progress(f"metrics {number + 1}/{sizes.pairs}: {'with' if metered else 'without'}")
            rate, usage = _drain(lab, sizes.scale_rows, metered=metered)
            rates[metered].append(rate)
            cpu[metered].append(usage.cpu_seconds / sizes.scale_rows * 1e6)
            found.runs.append({"metered": metered, "rate": rate, "cpu": usage.cpu_seconds})
    found.add("drain without metrics", rates[False], "/s")
    found.add("drain with metrics, scraped each 2 s", rates[True], "/s")
    found.add("ratio with metrics", ratios(rates[True], rates[False]), RATIO, at_least(0.97))
    found.add("relay's CPU without", cpu[False], "µs a row")
    found.add("relay's CPU with", cpu[True], "µs a row")
    return found


def _meter() -> Meter:
    clock = DatabaseClock()
    now = time.monotonic()
    clock.note(now, now, 800_000_000_000_000)
    return Meter(Instruments("bench"), DestinationLabels(100), Router(), clock)


def _batch(number: int, spread: float) -> Batch:
    start = 800_000_000_000_000
    ages = [10 ** random.uniform(3, 10) for _ in range(_BATCH)]  # noqa: S311 - a load, no secret
    due = sorted(start - int(spread * age) for age in ages)
    first = number * _BATCH
    rows: list[Any] = [
        (first + n, "orders", *[None] * 9, struct.pack(">q", at), None) for n, at in enumerate(due)
    ]
    return Batch(str(number), rows)


def _meter_cost(spread: float) -> float:
    """Return the µs a row of everything but the acknowledgement's own time; rounds cut batches."""
    meter = _meter()
    batches = [_batch(number, spread) for number in range(_BATCHES)]
    acks = [(row[0], 0, 0, batch) for batch in batches for row in batch.rows]
    rows = [batch.rows for batch in batches]
    at = time.monotonic() + 20
    size = 3 * _BATCH // 2
    started = time.thread_time()
    for batch, own in zip(batches, rows, strict=True):
        batch.sending = meter.begin(own)
        batch.sending.acked_at = at
    for first in range(0, len(acks), size):
        some = acks[first : first + size]
        for batch, count in Counter([ack[3] for ack in some]).items():
            batch.awaited -= count
        meter.reported(some, ())  # type: ignore[arg-type]  # plain tuples, as in the relay
    return (time.thread_time() - started) / len(acks) * 1e6


def _clock_cost() -> float:
    now, sending, rounds = time.monotonic, _meter().begin(_batch(0, 0.0).rows), 200_000
    started = time.thread_time()
    for _ in range(rounds):
        sending.acked_at = now()
    return (time.thread_time() - started) / rounds * 1e6


def _record_cost() -> float:
    operations, rounds = Instruments("bench").operations, 20_000
    labels = {"destination": "orders"}
    started = time.thread_time()
    for _ in range(rounds):
        operations.record(0.02, labels)
    return (time.thread_time() - started) / rounds * 1e6


def _drain(lab: Lab, rows: int, *, metered: bool) -> tuple[float, Usage]:
    """Let a relay that goes on send `rows` rows; with metrics it is scraped meanwhile."""
    server = lab.server()
    with server.database() as database, lab.topic() as topic:
        outbox.migrate(server, database)
        with server.connect(database) as connection:
            outbox.checkpoint(connection)
            outbox.fill(connection, topic, rows)
            outbox.settle_down(connection)
        servers = lab.kafka.bootstrap_servers
        with RelayProcess(
            server.url(database),
            servers,
            folder=lab.new_folder("relay"),
            settings={"OUTBOX_BRIDGE_HTTP_PORT": "0"} if metered else None,
        ) as relay:
            scraper = _Scraper(relay.log) if metered else None
            await_records(
                servers,
                topic,
                rows,
                60 + rows / _SLOWEST,
                look=scraper.look if scraper is not None else lambda _found: None,
            )
            usage = relay.stop()
        arrival = read_topic(lab, topic)
    if arrival.records != rows or (scraper is not None and not scraper.scrapes):
        raise BenchError(f"{arrival.records} of {rows} records, scrapes: {scraper}")
    return arrival.per_second, usage


class _Scraper:
    """Scrapes a relay now and then, between two looks at the topic."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._next = 0.0
        self.scrapes = 0

    def look(self, _found: int) -> None:
        port = re.search(r'"port": ?(\d+)', self._log.read_text())
        if port is None or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _SCRAPE_SECONDS
        with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}/metrics", timeout=10) as answer:
            self.scrapes += b"outbox_bridge_relay_sent_total" in answer.read()
