"""The payment service: charges each order once, and says so through an outbox of its own.

Run by the demo as `python -m bridge.demo.shop.payment_service '{"topic": …, "to": …, …}'`.

Inbox row, payment and outgoing message are one transaction of its database. The payment API is
called within it, and that is all right here, because the call has the message's key: where the
transaction is lost, the message comes again and the API answers from its memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
from opentelemetry import propagate

import bridge
from bridge.consumer import RejectError
from bridge.demo.shop.consuming import consumer_of
from bridge.demo.shop.events import ORDER_PLACED, PAYMENT_CAPTURED, OrderPlaced, PaymentCaptured
from bridge.demo.shop.serving import arguments
from bridge.demo.shop.statements import statement
from bridge.demo.shop.tracing import client_span, traced

if TYPE_CHECKING:
    import psycopg

    from bridge.consumer import Consumer, Received

ACCOUNT = "outbox"
_KEY_REUSED = 422


def payment_service(topic: str, *, to: str, payment_api: str, api_seconds: float) -> Consumer:
    """Return the service: reads orders from one topic and writes payments for another."""
    consumer = consumer_of(topic, group="payment-service")
    client = httpx.AsyncClient(base_url=payment_api, timeout=api_seconds)

    @consumer.on(ORDER_PLACED)
    async def charge(
        order: OrderPlaced, conn: psycopg.AsyncConnection[Any], message: Received
    ) -> str:
        charge_id = await _charge(client, order, message.message_key)
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


async def _charge(client: httpx.AsyncClient, order: OrderPlaced, key: str) -> str:
    """Return the charge's id. Whatever httpx raises passes: then the message is tried again."""
    path = f"/{ACCOUNT}/charges"
    with client_span(f"POST {path}"):
        headers = {"Idempotency-Key": key}
        propagate.inject(headers)
        answer = await client.post(path, json=order.model_dump(), headers=headers)
        if answer.status_code == _KEY_REUSED:
            raise RejectError(f"the payment API knows {key} with another content")
        answer.raise_for_status()
    charge_id: str = answer.json()["charge_id"]
    return charge_id


def main() -> None:
    """Consume until asked to end."""
    told = arguments()
    with traced():
        payment_service(**told).run()


if __name__ == "__main__":
    main()
