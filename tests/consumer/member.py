"""One member of a consumer group as a process of its own, to be killed.

Arguments, as JSON: topic, group, brokers, database, name, static_member (or null), batch_size.
Prints STARTED once it has its partitions; from then on it ends in good order when it is asked to.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from bridge.consumer import Consumer, Inbox, RetryPolicy

if TYPE_CHECKING:
    import psycopg

    from bridge.consumer import Received

STARTED = "member started"
_KEEP = "insert into effect (message_key, ordering_key, number, consumer) values (%s, %s, %s, %s)"
# A killed member is missed soon; the tests' broker allows it.
_KAFKA = {"session_timeout_ms": 1500, "heartbeat_interval_ms": 150, "fetch_max_wait_ms": 50}


def main() -> None:
    """Consume until killed or stopped; one in thirty handler calls fails."""
    given = json.loads(sys.argv[1])
    consumer = Consumer(
        given["topic"],
        group=given["group"],
        bootstrap_servers=given["brokers"],
        inbox=Inbox(given["database"], short_retention="ignore"),
        static_member=given["static_member"],
        batch_size=given["batch_size"],
        concurrency=4,
        commit_interval=0.05,
        lock_timeout=0.5,
        retry=RetryPolicy(attempts=20, base=0.01, cap=0.05),
        kafka=_KAFKA,
    )
    dice = random.Random(given["name"])  # noqa: S311 - no secret

    @consumer.on("*")
    async def keep(number: int, conn: psycopg.AsyncConnection[Any], message: Received) -> None:
        key = message.key.decode() if message.key else None
        await conn.execute(_KEEP, [message.message_key, key, number, given["name"]])
        await asyncio.sleep(dice.random() * 0.01)
        if dice.random() < 1 / 30:
            raise ValueError("one of thirty")

    threading.Thread(target=_tell_start, args=[consumer], daemon=True).start()
    consumer.run()


def _tell_start(consumer: Consumer) -> None:
    while not consumer.is_ready:
        time.sleep(0.02)
    print(STARTED, flush=True)


if __name__ == "__main__":
    main()
