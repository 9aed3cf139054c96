"""`consumer`: the kit against a bare loop, one message a transaction; and many in one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from bridge.database.migration_sets import INBOX
from bridge.database.migrations import Migrator
from tests.bench.figures import RATIO, BenchError, Findings, at_least, ratios

if TYPE_CHECKING:
    from tests.bench.lab import Lab
    from tests.bench.sizes import Sizes

_CHECKOUT = Path(__file__).resolve().parents[2]
_KEYS = 5_000
_SECONDS = 600
_RECORD = (
    '{{"order_id":"order-{number:012d}","customer_id":"c{key:07d}","lines":[{{"sku":"{number:032x}",'
    '"quantity":2,"unit_price":"19.90"}}],"currency":"EUR","note":"{note}"}}'
)
_NOTE = "delivery as agreed by phone, to the back door " * 6


def run(lab: Lab, sizes: Sizes, peer: Path | None) -> Findings:
    """Alternate the sides; every side has a topic and a database of its own."""
    del peer
    rows = {
        "bare": sizes.consumer_rows,
        "single": sizes.consumer_rows,
        "batch": sizes.consumer_rows * 10,
    }
    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in rows}
    for number in range(sizes.pairs):
        sides = list(rows) if number % 2 == 0 else list(reversed(rows))
        for side in sides:
            lab.progress(f"consumer {number + 1}/{sizes.pairs}: {side}")
            runs[side].append(_measure(lab, side, rows[side]))
    found = Findings("consumer", runs=[run for side in runs.values() for run in side])
    rates = {side: [run["rows_per_second"] for run in runs[side]] for side in runs}
    found.add("messages a second, a bare loop", rates["bare"], "/s")
    found.add("messages a second, one a transaction", rates["single"], "/s")
    shares = ratios(rates["single"], rates["bare"])
    found.add("the same to the bare loop", shares, RATIO, at_least(0.5))
    found.add("messages a second, 500 a transaction", rates["batch"], "/s", at_least(5_000))
    for side in ("bare", "single", "batch"):
        cost = [run["cpu_us"] for run in runs[side]]
        found.add(f"CPU of the consumer, {side}", cost, "µs/message")
    return found


def _measure(lab: Lab, side: str, rows: int) -> dict[str, Any]:
    server = lab.server()
    with server.database() as database, lab.topic() as topic:
        with server.connect(database) as connection:
            Migrator(connection, chosen=INBOX).up()
            connection.execute("create table effect (order_id text, customer_id text)")
        _fill(lab, topic, rows)
        done = subprocess.run(
            [
                *(sys.executable, "-m", "tests.bench.consumer_process", side, topic, str(rows)),
                *(lab.kafka.bootstrap_servers, server.url(database)),
            ],
            cwd=_CHECKOUT,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        if done.returncode:
            raise BenchError(f"the consumer ended with {done.returncode}:\n{done.stderr[-2000:]}")
        with server.connect(database) as connection:
            counted = connection.execute("select count(*), count(distinct order_id) from effect")
            if counted.fetchone() != (rows, rows):
                raise BenchError(f"{side}: not every message had its effect exactly once")
    taken = json.loads(done.stdout)
    return {
        "side": side,
        "rows": rows,
        **taken,
        "rows_per_second": rows / taken["seconds"],
        "cpu_us": taken["cpu_seconds"] / rows * 1e6,
    }


def _fill(lab: Lab, topic: str, rows: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": lab.kafka.bootstrap_servers,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    for number in range(rows):
        key = number % _KEYS
        producer.produce(
            topic,
            value=_RECORD.format(number=number, key=key, note=_NOTE),
            key=f"c{key:07d}",
            headers={
                "outbox-id": str(number + 1),
                "event-type": "order.created",
                "idempotency-key": f"order-{number:012d}",
                "content-type": "application/json",
                "outbox-attempt": "1",
            },
        )
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(60):
        raise BenchError("the records could not be written to Kafka")
