"""One side of the benchmark `consumer` as a process: `bare`, `single` or `batch`.

Arguments: side, topic, number of records, brokers, database. Prints the seconds from the first
record in hand to the last commit, and the CPU seconds of that time.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from dataclasses import dataclass
from typing import Any

import orjson
import psycopg
from aiokafka import AIOKafkaConsumer

from bridge.consumer import Consumer, Inbox

_INSERT = "insert into effect (order_id, customer_id) values (%s, %s)"
_INSERT_MANY = "insert into effect select * from unnest(%s::text[], %s::text[])"
_BATCH = 500
_LOOK = 0.005


@dataclass
class Clock:
    """Starts with the first record."""

    started: float = 0.0
    cpu: float = 0.0

    def start(self) -> None:
        if not self.started:
            self.started, self.cpu = time.perf_counter(), time.process_time()

    def report(self) -> None:
        taken = {
            "seconds": time.perf_counter() - self.started,
            "cpu_seconds": time.process_time() - self.cpu,
        }
        sys.stdout.write(json.dumps(taken) + "\n")


async def _bare(topic: str, rows: int, brokers: str, url: str) -> None:
    """Do what a service without any kit does: one INSERT and one COMMIT for each record."""
    clock = Clock()
    kafka = AIOKafkaConsumer(
        topic,
        bootstrap_servers=brokers,
        group_id=f"bare-{topic}",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    await kafka.start()
    done = 0
    async with await psycopg.AsyncConnection.connect(url) as conn:
        async for record in kafka:
            clock.start()
            order = orjson.loads(record.value)
            await conn.execute(_INSERT, [order["order_id"], order["customer_id"]])
            await conn.commit()
            done += 1
            if done == rows:
                break
        await kafka.commit()
        clock.report()
    await kafka.stop()


async def _kit(side: str, topic: str, rows: int, brokers: str, url: str) -> None:
    clock = Clock()
    consumer = Consumer(
        topic,
        group=f"{side}-{topic}",
        bootstrap_servers=brokers,
        inbox=Inbox(url, short_retention="ignore"),
        batch_size=_BATCH if side == "batch" else 1,
        concurrency=2 if side == "batch" else 8,
    )

    if side == "single":

        @consumer.on("order.created")
        async def keep(order: dict[str, Any], conn: psycopg.AsyncConnection[Any]) -> None:
            clock.start()
            await conn.execute(_INSERT, [order["order_id"], order["customer_id"]])

    else:

        @consumer.on_many("order.created")
        async def keep_many(
            orders: list[dict[str, Any]], conn: psycopg.AsyncConnection[Any]
        ) -> None:
            clock.start()
            columns = [[order[name] for order in orders] for name in ("order_id", "customer_id")]
            await conn.execute(_INSERT_MANY, columns)

    serving = asyncio.create_task(consumer.serve())
    while consumer.counts.get("processed", 0) < rows:
        if serving.done():
            serving.result()
        await asyncio.sleep(_LOOK)
    clock.report()
    consumer.stop()
    await serving


def main() -> None:
    """Run one side."""
    side, topic, rows, brokers, url = sys.argv[1:]
    gc.freeze()
    if side == "bare":
        asyncio.run(_bare(topic, int(rows), brokers, url))
    else:
        asyncio.run(_kit(side, topic, int(rows), brokers, url))


if __name__ == "__main__":
    main()
