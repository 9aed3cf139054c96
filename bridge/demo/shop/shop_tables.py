"""The order service's tables, as SQLAlchemy sees them."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - SQLAlchemy reads annotations at run time

from sqlalchemy import DateTime, String, func
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Table(DeclarativeBase):
    """Everything of the shop but the outbox, which has migrations of its own."""


class Order(Table):
    """An accepted order; `way` tells which of the demo's two services accepted it."""

    __tablename__ = "shop_order"

    order_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    way: Mapped[str] = mapped_column(String(20))
    customer: Mapped[str] = mapped_column(String(100))
    item: Mapped[str] = mapped_column(String(100))
    quantity: Mapped[int]
    amount_cents: Mapped[int]
    placed_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())


class Stock(Table):
    """How many pieces of an item are left."""

    __tablename__ = "shop_stock"

    item: Mapped[str] = mapped_column(String(100), primary_key=True)
    left: Mapped[int]
