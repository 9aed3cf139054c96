"""The payment service: charges each order once, and says so through an outbox of its own.

Run by the demo as `python -m bridge.demo.shop.payment_service '{"topic": …, "to": …, …}'`.

Inbox row, payment and outgoing message are one transaction of its database. The payment API is
called within it, and that is all right here, because the call has the message's key: where the
transaction is lost, the message comes again and the API answers from its memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import bridge
from bridge.consumer.hand_off import HandOff
from bridge.demo.shop.consuming import consumer_of
from bridge.demo.shop.events import ORDER_PLACED, PAYMENT_CAPTURED, OrderPlaced, PaymentCaptured
from bridge.demo.shop.serving import arguments
from bridge.demo.shop.statements import statement
from bridge.demo.shop.tracing import client_span, traced

if TYPE_CHECKING:
    import psycopg

    from bridge.consumer import Consumer, Received

ACCOUNT = "outbox"


def payment_service(topic: str, *, to: str, payment_api: str, api_seconds: float) -> Consumer:
    """Return the service: reads orders from one topic and writes payments for another."""
    consumer = consumer_of(topic, group="payment-service")
    path = f"/{ACCOUNT}/charges"
    api = HandOff(f"{payment_api}{path}", timeout=api_seconds)
    consumer.at_end(api.close)

    @consumer.on(ORDER_PLACED)
    async def charge(
        order: OrderPlaced, conn: psycopg.AsyncConnection[Any], message: Received
    ) -> str:
        # Raises where there is no answer, or a bad one; then the message is tried again.
        with client_span(f"POST {path}"):
            answer = await api.send(message.value, message)
        charge_id: str = answer["answer"]["charge_id"]
        payment = PaymentCaptured(
            order_id=order.order_id,
            charge_id=charge_id,
            customer=order.customer,
            amount_cents=order.amount_cents,
            currency=order.currency,
        )
        await conn.execute(statement("add_payment"), payment.model_dump())
        await bridge.enqueue_async(
            conn,
            message_key=payment.message_key,
            event_type=PAYMENT_CAPTURED,
            destination=to,
            ordering_key=payment.order_id,
            payload=payment,
        )
        return charge_id

    return consumer


def main() -> None:
    """Consume until asked to end."""
    told = arguments()
    with traced():
        payment_service(**told).run()


if __name__ == "__main__":
    main()
