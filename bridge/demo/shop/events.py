"""The shop's events as their writers and readers see them; `schemas/events/shop` says the same."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

ORDER_PLACED = "order.placed"
PAYMENT_CAPTURED = "payment.captured"


class OrderPlaced(BaseModel):
    """An order stands in the shop's database."""

    model_config = ConfigDict(frozen=True)

    order_id: str
    customer: str
    item: str
    quantity: int
    amount_cents: int
    currency: str

    @property
    def message_key(self) -> str:
        """One order is placed once, so its id makes the key."""
        return f"order-{self.order_id}-placed"


class PaymentCaptured(BaseModel):
    """An order was charged."""

    model_config = ConfigDict(frozen=True)

    order_id: str
    charge_id: str
    customer: str
    amount_cents: int
    currency: str

    @property
    def message_key(self) -> str:
        """One order is paid once."""
        return f"order-{self.order_id}-paid"
