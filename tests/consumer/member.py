"""One member of a consumer group as a process of its own, to be killed.

Arguments, as JSON: topic, group, brokers, database, name, static_member (or null), batch_size.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from typing import TYPE_CHECKING, Any

from bridge.consumer import Consumer, Inbox, RetryPolicy

if TYPE_CHECKING:
    import psycopg

    from bridge.consumer import Received

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

    consumer.run()


if __name__ == "__main__":
    main()
