"""What the payment API remembers: charges, and its answer to each idempotency key."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from bridge.database.connection import connect
from bridge.demo.shop.statements import statement

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request gets; `is_replay` where it was known and nothing was charged for it."""

    body: dict[str, Any]
    is_replay: bool


class KeyReusedError(Exception):
    """The idempotency key is known, with another content."""


class PaymentStore:
    """One connection a request, so that a restart of the database costs one request at most."""

    def __init__(self, url: str | None) -> None:
        self._url = url

    def charge(self, account: str, key: str | None, request: Mapping[str, Any]) -> Answer:
        """Charge, and store the answer under the key, in one transaction.

        A known key gets its stored answer; of two requests with one key at once the second waits
        for the first. Raises KeyReusedError for a known key with another content.
        """
        names = {"account": account, "idempotency_key": key, "fingerprint": fingerprint(request)}
        with connect(self._url, stage="charge", relay_name="demo-payment-api") as conn:
            with conn.transaction():
                if key is not None and not conn.execute(statement("claim_key"), names).fetchall():
                    stored = conn.execute(statement("repeat_answer"), names).fetchone()
                    assert stored is not None  # noqa: S101 - answers are never deleted
                    if stored[0] != names["fingerprint"]:
                        raise KeyReusedError
                    return Answer(stored[1], is_replay=True)
                charged = conn.execute(
                    statement("add_charge"),
                    {
                        "account": account,
                        "order_id": request["order_id"],
                        "amount_cents": request["amount_cents"],
                        "currency": request["currency"],
                    },
                ).fetchone()
                assert charged is not None  # noqa: S101 - RETURNING returns
                body = {"charge_id": f"ch-{charged[0]}", "amount_cents": request["amount_cents"]}
                if key is not None:
                    conn.execute(
                        statement("keep_answer"), names | {"body": orjson.dumps(body).decode()}
                    )
            return Answer(body, is_replay=False)

    def set_fault(
        self, account: str, *, seconds: float, times: int, only_order: str | None = None
    ) -> None:
        """Have the next charges of this account, or of one order, answered late.

        An API that is started anew does so too.
        """
        with connect(self._url, stage="faults", relay_name="demo-payment-api") as conn:
            conn.execute(
                statement("set_fault"),
                {
                    "account": account,
                    "seconds": seconds,
                    "times": times,
                    "only_order": only_order,
                },
            )

    def take_fault(self, account: str, order_id: str) -> float:
        """Return for how many seconds the answer to this charge is to be held back."""
        with connect(self._url, stage="faults", relay_name="demo-payment-api") as conn:
            names = {"account": account, "order_id": order_id}
            fault = conn.execute(statement("take_fault"), names).fetchone()
        return float(fault[0]) if fault else 0.0


def fingerprint(request: Mapping[str, Any]) -> str:
    """Return what tells a request from another one with the same key; spaces do not count."""
    return hashlib.sha256(orjson.dumps(request, option=orjson.OPT_SORT_KEYS)).hexdigest()
