"""What a claimer makes of the switches, look by look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge.switches import batch, limit, pause, resume
from tests.claims.desk import Desk
from tests.claims.outbox import insert

if TYPE_CHECKING:
    from collections.abc import Iterator

Connection = psycopg.Connection[tuple[Any, ...]]

WHO: dict[str, Any] = {"reason": "a test", "actor": "ann@desk"}
FAR = 1 << 60


@pytest.fixture
def desk(database_url: str) -> Iterator[Desk]:
    desk = Desk(database_url)
    yield desk
    desk.close()


def look(desk: Desk, rows: int = 100) -> list[int]:
    """Look as the claimer does half a second later."""
    desk.claimer._controls._next_reading = 0.0
    return desk.look(rows)


def test_closed_destinations_are_left_out_and_come_back(conn: Connection, desk: Desk) -> None:
    orders, invoices = insert(conn, 3), insert(conn, 3, destination="invoices")
    pause(conn, "orders", **WHO)
    assert look(desk) == invoices
    pause(conn, **WHO)
    more = insert(conn, 3, destination="invoices")
    assert look(desk) == []
    resume(conn, "orders", **WHO)
    assert look(desk) == []
    resume(conn, **WHO)
    assert look(desk) == orders + more


def test_a_resumed_destination_is_looked_at_from_the_beginning(
    conn: Connection, desk: Desk
) -> None:
    """Its rows may be older than the floor that looks start from under a held snapshot."""
    pause(conn, "orders", **WHO)
    orders = insert(conn, 30)
    assert look(desk) == []
    desk.claimer._targets._floor, desk.claimer._targets._next_walk = FAR, float("inf")
    resume(conn, "orders", **WHO)
    assert look(desk, 10) + look(desk, 10) + look(desk, 10) == orders


def test_rows_per_claim_and_limit_cap_each_other(conn: Connection, desk: Desk) -> None:
    orders = insert(conn, 100)
    batch(conn, rows=20, **WHO)
    assert look(desk) == orders[:20]
    limit(conn, "orders", rows_per_second=50, **WHO)
    assert look(desk) == orders[20:25]
    invoices = insert(conn, 30, destination="invoices")
    assert look(desk)[-20:] == invoices[:20]


def test_what_a_claim_did_not_find_may_be_claimed_later(conn: Connection, desk: Desk) -> None:
    limit(conn, "orders", rows_per_second=50, **WHO)
    first = insert(conn, 2)
    assert look(desk) == first
    rest = insert(conn, 5)
    # Three are left of the portion of five; the bucket itself is locked.
    with conn.transaction(force_rollback=True):
        conn.execute("update app_outbox_rate set tokens = 0")
        assert look(desk) == rest[:3]


def test_a_claim_that_fails_gives_its_portion_back(
    conn: Connection, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(conn, "orders", rows_per_second=50, **WHO)
    orders = insert(conn, 5)

    def fail(_: object) -> Any:
        raise psycopg.errors.LockNotAvailable("a lock on the whole table")

    with monkeypatch.context() as broken:
        broken.setattr(desk.claimer, "_claim_without_waiting_long", fail)
        with pytest.raises(psycopg.errors.LockNotAvailable):
            look(desk)
    with conn.transaction(force_rollback=True):
        conn.execute("update app_outbox_rate set tokens = 0")
        assert look(desk) == orders


def test_nothing_is_due_where_everything_due_is_closed(conn: Connection, desk: Desk) -> None:
    insert(conn, 2)
    insert(conn, 2, destination="invoices")

    def nothing_due() -> bool:
        desk.claimer._controls.refresh(force=True)
        return desk.claimer._nothing_due()

    assert not nothing_due()
    pause(conn, "orders", **WHO)
    assert not nothing_due()
    pause(conn, "invoices", **WHO)
    assert nothing_due()
    resume(conn, "invoices", **WHO)
    pause(conn, **WHO)
    assert nothing_due()
