"""The order service: FastAPI and SQLAlchemy, one transaction an order.

Run by the demo as `python -m bridge.demo.shop.order_service '{"port": n, "payment_api": url, …}'`.

`POST /orders` writes the order and its message in one transaction and calls nobody. `POST
/naive/orders` is how it was before: it calls the payment API inside the transaction. In both the
stock is counted last, so an order may fail after everything else was done; then the transaction is
rolled back. Asked twice for one order, both answer the second time with what is there.
"""

from __future__ import annotations

from typing import Final, Literal

import httpx
import psycopg
from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, Field
from sqlalchemy import create_engine, update
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session
from starlette.responses import JSONResponse

from bridge.demo.shop.events import ORDER_PLACED, OrderPlaced
from bridge.demo.shop.serving import arguments, new_app, serve
from bridge.demo.shop.shop_tables import Order, Stock
from bridge.integrations.sqlalchemy import enqueue
from bridge.settings import load_settings

CURRENCY = "EUR"
NAIVE: Final = "naive"
OUTBOX: Final = "outbox"
Way = Literal["naive", "outbox"]


class NewOrder(BaseModel):
    """What a customer's client sends; it chooses the id, so that it may ask again."""

    order_id: str = Field(pattern=r"^[A-Za-z0-9-]{1,64}$")
    customer: str = Field(min_length=1, max_length=100)
    item: str = Field(min_length=1, max_length=100)
    quantity: int = Field(ge=1, le=1000)
    amount_cents: int = Field(ge=1)


class SoldOutError(Exception):
    """Not enough is left; the transaction that finds it is rolled back."""


class OrderDesk:
    """The business transactions."""

    def __init__(self, engine: Engine, *, destination: str, payments: httpx.Client) -> None:
        self._engine = engine
        self._destination = destination
        self._payments = payments

    def place(self, new: NewOrder) -> bool:
        """Accept an order and enqueue its message; False where it was accepted before."""
        with Session(self._engine) as session, session.begin():
            if session.get(Order, new.order_id) is not None:
                return False
            session.add(_order(new, OUTBOX))
            session.flush()
            event = OrderPlaced(**new.model_dump(), currency=CURRENCY)
            enqueue(
                session,
                message_key=event.message_key,
                event_type=ORDER_PLACED,
                destination=self._destination,
                ordering_key=event.order_id,
                payload=event,
            )
            _take_from_stock(session, new)
        return True

    def place_naively(self, new: NewOrder) -> bool:
        """Accept an order and charge it on the spot: what the outbox is there to replace.

        The charge stands whatever becomes of the transaction, and a call that was not answered may
        have charged all the same.
        """
        with Session(self._engine) as session, session.begin():
            if session.get(Order, new.order_id) is not None:
                return False
            session.add(_order(new, NAIVE))
            session.flush()
            charge = {**new.model_dump(), "currency": CURRENCY}
            self._payments.post(f"/{NAIVE}/charges", json=charge).raise_for_status()
            _take_from_stock(session, new)
        return True


def _order(new: NewOrder, way: Way) -> Order:
    return Order(
        order_id=new.order_id,
        way=way,
        customer=new.customer,
        item=new.item,
        quantity=new.quantity,
        amount_cents=new.amount_cents,
    )


def _take_from_stock(session: Session, new: NewOrder) -> None:
    taken = session.execute(
        update(Stock)
        .where(Stock.item == new.item, Stock.left >= new.quantity)
        .values(left=Stock.left - new.quantity)
        .returning(Stock.left)
    )
    if taken.first() is None:
        raise SoldOutError(new.item)


def order_service(desk: OrderDesk) -> FastAPI:
    """Return the service: 201 accepted, 200 accepted before, 409 sold out, 503 or 504 try again."""
    app = new_app("Order service")

    @app.post("/orders", status_code=201)
    def place(new: NewOrder, response: Response) -> dict[str, str]:
        if not desk.place(new):
            response.status_code = 200
        return {"order_id": new.order_id}

    @app.post("/naive/orders", status_code=201)
    def place_naively(new: NewOrder, response: Response) -> dict[str, str]:
        if not desk.place_naively(new):
            response.status_code = 200
        return {"order_id": new.order_id}

    @app.exception_handler(SoldOutError)
    def sold_out(_request: Request, error: SoldOutError) -> JSONResponse:
        return JSONResponse({"detail": f"{error} is sold out"}, 409)

    @app.exception_handler(httpx.HTTPError)
    def no_answer(_request: Request, error: httpx.HTTPError) -> JSONResponse:
        return JSONResponse({"detail": f"the payment API: {type(error).__name__}"}, 504)

    @app.exception_handler(DBAPIError)
    def no_database(_request: Request, error: DBAPIError) -> JSONResponse:
        return JSONResponse({"detail": f"the database: {type(error.orig).__name__}"}, 503)

    return app


def open_engine(url: str | None) -> Engine:
    """Return SQLAlchemy's engine for a libpq connection string; tries connections before use."""
    return create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(url or ""), pool_pre_ping=True
    )


def main() -> None:
    """Serve until asked to end."""
    told = arguments()
    desk = OrderDesk(
        open_engine(load_settings().database_url),
        destination=told["destination"],
        payments=httpx.Client(base_url=told["payment_api"], timeout=told["api_seconds"]),
    )
    serve(order_service(desk), port=told["port"])


if __name__ == "__main__":
    main()
