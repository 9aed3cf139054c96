"""The payment API: a key is charged once, whoever asks, however often, whatever dies."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import httpx
import psycopg
import pytest

from bridge.demo.shop.payment_api import payment_api
from bridge.demo.shop.payment_store import KeyReusedError, PaymentStore
from bridge.demo.shop.statements import statement
from tests.fixtures.postgres import on_one_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = on_one_server

_ORDER = {"order_id": "17", "amount_cents": 1980, "currency": "EUR", "customer": "Ada"}


@pytest.fixture
def store(empty_database_url: str) -> PaymentStore:
    with psycopg.connect(empty_database_url) as conn:
        conn.execute(statement("create_charges"))
    return PaymentStore(empty_database_url)


@pytest.fixture
async def api(store: PaymentStore) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(payment_api(store))
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
        yield client


def charges(url: str) -> int:
    with psycopg.connect(url) as conn:
        (count,) = conn.execute("select count(*) from charge").fetchall()[0]
        return int(count)


async def test_a_known_key_gets_the_stored_answer_and_is_not_charged_again(
    api: httpx.AsyncClient, empty_database_url: str
) -> None:
    key = {"Idempotency-Key": "order-17-placed"}
    first = await api.post("/shop/charges", json=_ORDER, headers=key)
    again = await api.post("/shop/charges", json=dict(reversed(_ORDER.items())), headers=key)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json() == {"charge_id": "ch-1", "amount_cents": 1980}
    assert "Idempotency-Replayed" not in first.headers
    assert again.headers["Idempotency-Replayed"] == "true"
    assert charges(empty_database_url) == 1


async def test_a_known_key_with_other_content_is_refused(
    api: httpx.AsyncClient, empty_database_url: str
) -> None:
    key = {"Idempotency-Key": "order-17-placed"}
    await api.post("/shop/charges", json=_ORDER, headers=key)
    other = await api.post("/shop/charges", json=_ORDER | {"amount_cents": 1}, headers=key)
    assert other.status_code == 422
    assert "was used for another request" in other.json()["detail"]
    assert charges(empty_database_url) == 1


async def test_keys_belong_to_an_account_and_no_key_means_no_memory(
    api: httpx.AsyncClient, empty_database_url: str
) -> None:
    key = {"Idempotency-Key": "k"}
    for account in ("a", "b"):
        assert (await api.post(f"/{account}/charges", json=_ORDER, headers=key)).is_success
    for _ in range(2):
        assert (await api.post("/a/charges", json=_ORDER)).is_success
    assert charges(empty_database_url) == 4


async def test_an_incomplete_order_is_refused(
    api: httpx.AsyncClient, empty_database_url: str
) -> None:
    assert (await api.post("/shop/charges", json={"order_id": "17"})).status_code == 422
    assert charges(empty_database_url) == 0


def test_two_at_once_with_one_key_are_charged_once(
    store: PaymentStore, empty_database_url: str
) -> None:
    start = threading.Barrier(8)
    bodies: list[str] = []

    def ask() -> None:
        start.wait(30)
        bodies.append(store.charge("shop", "k", _ORDER).body["charge_id"])

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(bodies) == 8
    assert len(set(bodies)) == 1
    assert charges(empty_database_url) == 1


def test_a_charge_that_is_lost_with_its_process_leaves_no_answer(
    store: PaymentStore, empty_database_url: str
) -> None:
    """Charge and answer are one transaction: what dies before its end has charged nothing."""
    with psycopg.connect(empty_database_url) as dying:
        names = {"account": "shop", "idempotency_key": "k", "fingerprint": "f"}
        dying.execute(statement("claim_key"), names)
        dying.rollback()
    assert store.charge("shop", "k", _ORDER).is_replay is False
    with pytest.raises(KeyReusedError):
        store.charge("shop", "k", _ORDER | {"amount_cents": 2})
    assert charges(empty_database_url) == 1


def test_a_fault_is_taken_as_often_as_it_was_set(store: PaymentStore) -> None:
    assert store.take_fault("shop", "1") == 0
    store.set_fault("shop", seconds=3.0, times=1)
    assert [store.take_fault("shop", "1"), store.take_fault("shop", "2")] == [3.0, 0]
    store.set_fault("shop", seconds=2.0, times=1, only_order="4")
    assert [store.take_fault("shop", "3"), store.take_fault("shop", "4")] == [0, 2.0]


async def test_the_api_takes_faults(api: httpx.AsyncClient, store: PaymentStore) -> None:
    fault = {"seconds": 1.5, "times": 2}
    assert (await api.put("/shop/faults", json=fault)).status_code == 204
    assert [store.take_fault("shop", "1") for _ in range(3)] == [1.5, 1.5, 0]
