"""The payment API: somebody else's service, which charges and cannot be rolled back.

Run by the demo as `python -m bridge.demo.shop.payment_api '{"port": n}'`.

`POST /{account}/charges` charges. With an `Idempotency-Key` it stores its answer in the same
transaction: a known key gets the stored answer (`Idempotency-Replayed: true`) and is not charged
again; a known key with other content is refused with 422. `PUT /{account}/faults` has the next
charges answered late: charged, and no answer in time.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import FastAPI, Header, HTTPException, Response
from pydantic import BaseModel, ConfigDict
from starlette.concurrency import run_in_threadpool

from bridge.demo.shop.payment_store import KeyReusedError, PaymentStore
from bridge.demo.shop.serving import arguments, new_app, serve
from bridge.settings import load_settings


class ChargeRequest(BaseModel):
    """What must be in a charge's body; more may be, and counts as content."""

    model_config = ConfigDict(extra="allow")

    order_id: str
    amount_cents: int
    currency: str


class Fault(BaseModel):
    """Hold back the answers to so many charges."""

    seconds: float
    times: int
    only_order: str | None = None


def payment_api(store: PaymentStore) -> FastAPI:
    """Return the API over this store."""
    app = new_app("Payment API")

    @app.post("/{account}/charges", status_code=201)
    async def charge(
        account: str,
        body: ChargeRequest,
        response: Response,
        idempotency_key: Annotated[str | None, Header(max_length=255)] = None,
    ) -> dict[str, Any]:
        request = body.model_dump()
        try:
            answer = await run_in_threadpool(store.charge, account, idempotency_key, request)
        except KeyReusedError:
            raise HTTPException(
                422, f"Idempotency-Key {idempotency_key} was used for another request"
            ) from None
        if answer.is_replay:
            response.headers["Idempotency-Replayed"] = "true"
        else:
            await asyncio.sleep(await run_in_threadpool(store.take_fault, account, body.order_id))
        return answer.body

    @app.put("/{account}/faults", status_code=204)
    def set_fault(account: str, fault: Fault) -> None:
        store.set_fault(
            account, seconds=fault.seconds, times=fault.times, only_order=fault.only_order
        )

    return app


def main() -> None:
    """Serve until asked to end."""
    app = payment_api(PaymentStore(load_settings().database_url))
    serve(app, port=arguments()["port"])


if __name__ == "__main__":
    main()
