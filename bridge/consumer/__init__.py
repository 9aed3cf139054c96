"""Consumers that stay right: every message has its effect once, in the order of its key.

from bridge.consumer import Consumer, Inbox

consumer = Consumer("orders", group="billing", inbox=Inbox("postgresql://localhost/billing"))

@consumer.on("order.paid")
async def bill(order: dict, conn) -> None:
    await conn.execute("insert into bill (order_id) values (%s)", [order["id"]])

consumer.run()
"""

from __future__ import annotations

from bridge.consumer.consumer import Consumer
from bridge.consumer.inbox import Inbox, Receipt
from bridge.consumer.outcomes import RejectError, RetryLaterError, RetryPolicy
from bridge.consumer.received import Received

__all__ = [
    "Consumer",
    "Inbox",
    "Receipt",
    "Received",
    "RejectError",
    "RetryLaterError",
    "RetryPolicy",
]
