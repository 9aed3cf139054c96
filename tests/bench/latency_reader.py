"""A consumer in a process of its own, which notes when each record arrives.

usage: python -m tests.bench.latency_reader BOOTSTRAP_SERVERS TOPIC FILE
Says `ready` on stdout, reads what arrives from then on until its stdin is closed and nothing more
comes, then writes FILE:
a JSON array of [arrived, committed, number]; times in seconds since 1970.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from tests.bench.lab import PARTITIONS

_QUIET_SECONDS = 2.0
_LONGEST_SECONDS = 600.0


def main() -> None:
    bootstrap_servers, topic, file = sys.argv[1:]
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            # Else records may wait longer for the next fetch.
            "fetch.queue.backoff.ms": 1,
        }
    )
    parts = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    for part in parts:
        part.offset = consumer.get_watermark_offsets(part, timeout=30)[1]
    consumer.assign(parts)
    ended = threading.Event()

    def await_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=await_end, daemon=True).start()
    print("ready", flush=True)
    arrivals: list[tuple[float, bytes | None]] = []
    latest = started = time.time()
    while True:
        message = consumer.poll(0.2)
        now = time.time()
        if message is not None:
            if message.error():
                raise SystemExit(f"the topic cannot be read: {message.error()}")
            arrivals.append((now, message.value()))
            latest = now
        elif ended.is_set() and now - latest > _QUIET_SECONDS:
            break
        if now - started > _LONGEST_SECONDS:
            raise SystemExit(f"still reading after {_LONGEST_SECONDS:.0f} s")
    consumer.close()
    rows = []
    for arrived, value in arrivals:
        payload = json.loads(value or b"{}")
        rows.append((arrived, payload["t"], payload["n"]))
    Path(file).write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
