"""The notification service: tells each customer once that the order is paid.

Run by the demo as `python -m bridge.demo.shop.notification_service '{"topic": …}'`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.demo.shop.consuming import consumer_of
from bridge.demo.shop.events import PAYMENT_CAPTURED, PaymentCaptured
from bridge.demo.shop.serving import arguments
from bridge.demo.shop.statements import statement
from bridge.demo.shop.tracing import traced

if TYPE_CHECKING:
    import psycopg

    from bridge.consumer import Consumer


def notification_service(topic: str) -> Consumer:
    """Return the service: reads payments and writes notifications."""
    consumer = consumer_of(topic, group="notification-service")

    @consumer.on(PAYMENT_CAPTURED)
    async def tell(payment: PaymentCaptured, conn: psycopg.AsyncConnection[Any]) -> None:
        amount = f"{payment.amount_cents / 100:.2f} {payment.currency}"
        await conn.execute(
            statement("add_notification"),
            {
                "order_id": payment.order_id,
                "customer": payment.customer,
                "told": f"Your order {payment.order_id} is paid: {amount}.",
            },
        )

    return consumer


def main() -> None:
    """Consume until asked to end."""
    told = arguments()
    with traced():
        notification_service(**told).run()


if __name__ == "__main__":
    main()
