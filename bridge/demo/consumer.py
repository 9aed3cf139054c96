"""The consumer as a process of its own: idempotent by the message key.

Run by the demo as `python -m bridge.demo.consumer`. It keeps the keys it has processed in a table
of its own and applies each message in the transaction that keeps its key, so that a record that
comes twice has its effect once; Kafka's offsets are committed after that transaction. The command
`{"notes": path}` makes it read to the topics' ends, write every receipt down, and end.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import psycopg
from aiokafka import AIOKafkaConsumer, TopicPartition

from bridge.demo.receipts import Receipt
from bridge.demo.wire import DemoEndedError, Wire
from bridge.message import HEADER_EVENT_TYPE, HEADER_IDEMPOTENCY_KEY, HEADER_OUTBOX_ID
from bridge.settings import load_settings

_POLL_MS = 100
_TELL_SECONDS = 0.1
_MOST_RECORDS = 2000
_GATHER_SECONDS = 0.05
"""What arrives within this time shares a transaction and a commit of offsets."""

_KEEP_KEYS = """
    insert into warehouse_processed (message_key)
    select unnest(%s::text[])
    on conflict do nothing
    returning message_key
"""
_APPLY = """
    insert into warehouse_effect (event_type, applied)
    select * from unnest(%s::text[], %s::bigint[])
    on conflict (event_type) do update set applied = warehouse_effect.applied + excluded.applied
"""


class Warehouse:
    """Receives in one task, which notes the time of arrival, and applies in another."""

    def __init__(self, consumer: Any, conn: psycopg.AsyncConnection[Any]) -> None:
        self._consumer = consumer
        self._conn = conn
        self._arrived: list[tuple[Receipt, str]] = []
        self._offsets: dict[TopicPartition, int] = {}
        self._more = asyncio.Event()
        self._reached: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] | None = None
        self._keys: set[str] = set()
        self.receipts: list[Receipt] = []

    def facts(self) -> dict[str, Any]:
        """Return the counts for the demo's screen."""
        received, distinct = len(self.receipts), len(self._keys)
        return {"received": received, "distinct": distinct, "duplicates": received - distinct}

    async def receive(self) -> None:
        """Take records in until the ends that `finish` found are reached."""
        while not self._at_the_ends:
            batches = await self._consumer.getmany(timeout_ms=_POLL_MS, max_records=_MOST_RECORDS)
            now = time.time_ns()
            for partition, records in batches.items():
                for record in records:
                    self._take(record, now)
                self._reached[partition] = self._offsets[partition] = records[-1].offset + 1
            if batches:
                self._more.set()
        self._more.set()

    def _take(self, record: Any, now: int) -> None:
        headers = dict(record.headers)
        receipt = _receipt(record, headers, now)
        self._keys.add(receipt.message_key)
        self.receipts.append(receipt)
        self._arrived.append((receipt, headers[HEADER_EVENT_TYPE].decode()))

    async def apply(self) -> None:
        """Apply what arrived, in transactions, then commit the offsets; until all is applied."""
        while self._arrived or not self._at_the_ends:
            await self._more.wait()
            await asyncio.sleep(_GATHER_SECONDS)
            self._more.clear()
            arrived, self._arrived = self._arrived, []
            offsets, self._offsets = self._offsets, {}
            if not arrived:
                continue
            types = {receipt.message_key: event_type for receipt, event_type in arrived}
            async with self._conn.transaction():
                kept = await self._conn.execute(_KEEP_KEYS, [list(types)])
                fresh = Counter(types[key] for (key,) in await kept.fetchall())
                await self._conn.execute(_APPLY, [list(fresh), list(fresh.values())])
            await self._consumer.commit(offsets)

    async def finish(self) -> int:
        """From now on stop at the topics' ends as they are now; return the number of records."""
        partitions = list(self._consumer.assignment())
        first = await self._consumer.beginning_offsets(partitions)
        ends = await self._consumer.end_offsets(partitions)
        self._ends = ends
        return int(sum(ends.values()) - sum(first.values()))

    @property
    def _at_the_ends(self) -> bool:
        return self._ends is not None and all(
            self._reached.get(partition, 0) >= end for partition, end in self._ends.items()
        )


def _receipt(record: Any, headers: dict[str, bytes], now: int) -> Receipt:
    key = record.key.decode()
    message_key = headers[HEADER_IDEMPOTENCY_KEY].decode()
    return Receipt(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        outbox_id=int(headers[HEADER_OUTBOX_ID]),
        message_key=message_key,
        # The relay makes the ordering key the record's key where a message has one.
        ordering_key=key if key != message_key else None,
        received_ns=now,
    )


async def _serve(wire: Wire, warehouse: Warehouse) -> Path:
    """Tell the counts until the command to finish comes; return where the notes go."""
    while True:
        await asyncio.sleep(_TELL_SECONDS)
        wire.say(**warehouse.facts())
        for command in wire.commands():
            wire.say(records_in_topics=await warehouse.finish())
            return Path(command["notes"])


async def _run(topics: list[str], fetch_wait_ms: int, wire: Wire) -> None:
    settings = load_settings()
    consumer = AIOKafkaConsumer(
        *topics,
        fetch_max_wait_ms=fetch_wait_ms,
        bootstrap_servers=settings.kafka.bootstrap_servers,
        group_id=f"warehouse-{topics[0]}",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    conn = await psycopg.AsyncConnection.connect(
        settings.database_url or "",
        autocommit=True,
        application_name="outbox-bridge/demo-warehouse/consumer",
    )
    async with conn:
        try:
            await consumer.start()
            wire.say(ready=True)
            warehouse = Warehouse(consumer, conn)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(warehouse.receive())
                tasks.create_task(warehouse.apply())
                notes = tasks.create_task(_serve(wire, warehouse))
            notes.result().write_bytes(orjson.dumps(warehouse.receipts, default=tuple))
            wire.say(**warehouse.facts(), written=True)
        finally:
            await consumer.stop()


def main() -> int:
    """Consume what the first argument says until the demo asks for the notes, or is gone."""
    code = 0
    try:
        asyncio.run(_run(**orjson.loads(sys.argv[1]), wire=Wire()))
    except* DemoEndedError:
        code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
