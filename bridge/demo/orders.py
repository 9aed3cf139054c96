"""The order service's business transactions, as an application writes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg

from bridge import Message, enqueue, enqueue_many

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge import EnqueueResult

EVENTS_OF_STEP = {"created": 1, "paid": 2, "shipped": 1}
"""Messages that each step of an order enqueues: `paid` also has a receipt mailed."""


@dataclass(frozen=True, slots=True)
class Destinations:
    """Where the messages go; the topics have the same names."""

    orders: str
    mails: str


class OrderService:
    """Writes each change of an order and its messages in one transaction of `conn`.

    Messages of one order share an ordering key, so consumers see created, paid, shipped in this
    order. For that a transaction locks the order's row before it enqueues; then the order of the
    messages is the order of the commits. The mails have no ordering key: any order will do.
    """

    def __init__(self, conn: psycopg.Connection[Any], destinations: Destinations) -> None:
        self._conn = conn
        self._to = destinations

    def place(self, order_id: int) -> list[EnqueueResult]:
        """Accept an order. Placed again (a client that asks twice) it changes nothing."""
        with self._conn.transaction():
            return self._place(order_id)

    def place_twice(self, order_id: int) -> list[EnqueueResult]:
        """Accept an order and its impatient client's second click, in one transaction."""
        with self._conn.transaction():
            return [*self._place(order_id), *self._place(order_id)]

    def place_and_decline(self, order_id: int) -> None:
        """Accept an order, then find the card declined: order and message vanish together."""
        with self._conn.transaction() as transaction:
            self._place(order_id)
            raise psycopg.Rollback(transaction)

    def pay(self, order_id: int) -> list[EnqueueResult]:
        """Take the payment; the receipt is mailed by whoever consumes that message."""
        with self._conn.transaction():
            self._advance(order_id, "paid")
            receipt = enqueue(
                self._conn,
                message_key=f"order-{order_id}-receipt",
                event_type="mail.receipt",
                destination=self._to.mails,
                payload={"order": order_id, "template": "receipt"},
            )
            return [self._announce(order_id, "paid"), receipt]

    def ship(self, order_id: int) -> list[EnqueueResult]:
        """Hand the parcel over."""
        with self._conn.transaction():
            self._advance(order_id, "shipped")
            return [self._announce(order_id, "shipped")]

    def take_over(self, order_ids: Sequence[int]) -> list[EnqueueResult]:
        """Accept many orders at once, from a marketplace's file: all of them or none."""
        with self._conn.transaction():
            self._conn.execute(
                "insert into shop_order (order_id, status) select unnest(%s::bigint[]), 'created'",
                [list(order_ids)],
            )
            return enqueue_many(
                self._conn,
                [
                    Message(
                        message_key=created_key(order_id),
                        event_type="order.created",
                        destination=self._to.orders,
                        ordering_key=f"order-{order_id}",
                        payload={"order": order_id, "status": "created"},
                    )
                    for order_id in order_ids
                ],
            )

    def _place(self, order_id: int) -> list[EnqueueResult]:
        self._conn.execute(
            "insert into shop_order (order_id, status) values (%s, 'created') "
            "on conflict do nothing",
            [order_id],
        )
        return [self._announce(order_id, "created")]

    def _advance(self, order_id: int, status: str) -> None:
        self._conn.execute("select from shop_order where order_id = %s for update", [order_id])
        self._conn.execute(
            "update shop_order set status = %s, changed_at = now() where order_id = %s",
            [status, order_id],
        )

    def _announce(self, order_id: int, status: str) -> EnqueueResult:
        return enqueue(
            self._conn,
            message_key=f"order-{order_id}-{status}",
            event_type=f"order.{status}",
            destination=self._to.orders,
            ordering_key=f"order-{order_id}",
            payload={"order": order_id, "status": status},
        )


def created_key(order_id: int) -> str:
    """Return the message key of an order's first message."""
    return f"order-{order_id}-created"
