"""`outbox-bridge keys` tells which keys are held up, by what, and how long."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge.held_keys import UNTIL_DECIDED

if TYPE_CHECKING:
    from tests.fixtures.cli import RunCliFunction


@pytest.fixture
def held(database_url: str) -> dict[str, int]:
    """Four held keys; returns their heads."""
    heads: dict[str, int] = {}
    with psycopg.connect(database_url, autocommit=True) as conn:
        for key, status, released in (
            ("failed", "FAILED", None),
            ("later", "PENDING", None),
            ("sending", "PROCESSING", None),
            ("back", "SENT", "now()"),
        ):
            head, *_ = (
                row[0]
                for row in conn.execute(
                    "insert into app_outbox (message_key, event_type, destination, ordering_key) "
                    "select %s || n, 't', %s, %s from generate_series(1, 3) as n "
                    "returning outbox_id",
                    [key, "orders" if key == "failed" else "invoices", key],
                )
            )
            conn.execute(
                "insert into app_outbox_hold (destination, ordering_key, outbox_id, key_hash, "
                "lane, boundary, error_code, released_at) "
                "select destination, ordering_key, outbox_id, "
                "hashtext(ordering_key), hashtext(ordering_key) & 63, outbox_id, "
                "'MESSAGE_TOO_LARGE', "
                f"{released or 'null'}::timestamptz from app_outbox where outbox_id = %s",
                [head],
            )
            conn.execute(
                "update app_outbox set status = %s, next_run_at = '2999-01-02 03:04:05+00' "
                "where outbox_id = %s",
                [status, head],
            )
            heads[key] = head
        conn.execute("update app_outbox_queue set parked = 'k'")
    return heads


def test_held_keys_are_listed(run_cli: RunCliFunction, held: dict[str, int]) -> None:
    found: dict[str, dict[str, Any]] = {
        key["ordering_key"]: key for key in json.loads(run_cli("keys", "--json").stdout)["keys"]
    }
    assert {key: one["outbox_id"] for key, one in found.items()} == held
    assert found["failed"]["until"] == UNTIL_DECIDED
    assert found["later"]["until"].startswith("2999-01-0")
    assert found["sending"]["until"] == "the row is being sent"
    assert found["back"]["until"] == "its rows are coming back"
    assert {one["waiting"] for one in found.values()} == {2}
    assert found["failed"]["error_code"] == "MESSAGE_TOO_LARGE"


def test_the_table_shows_one_destination(run_cli: RunCliFunction, held: dict[str, int]) -> None:
    lines = run_cli("keys", "--destination", "orders").stdout.splitlines()
    assert len(lines) == 2
    assert str(held["failed"]) in lines[1]
    assert UNTIL_DECIDED in lines[1]


def test_no_held_key_is_said_in_words(run_cli: RunCliFunction, database_url: str) -> None:
    assert database_url
    assert run_cli("keys").stdout == "No key is held.\n"
