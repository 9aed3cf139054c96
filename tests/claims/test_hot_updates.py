"""A message costs two HOT updates: no index entry is written again, nor its payload moved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg

from tests.claims.outbox import insert
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from tests.claims.desk import Desk

Conn = psycopg.Connection[Any]


def test_claim_and_settle_are_hot_updates(conn: Conn, desk: Desk) -> None:
    payload = '{"text": "' + "x" * 480 + '"}'
    rows = 6000
    for _ in range(6):
        insert(conn, rows // 6, payload=payload)
    batches = []
    while (batch := desk.claim(rows=1000)).rows:
        batches.append(batch)
    assert sum(desk.settle(batch) for batch in batches) == rows
    updated, hot = _update_counts(conn, desk, 2 * rows)
    assert updated == 2 * rows
    assert hot / updated >= 0.99


def _update_counts(conn: Conn, desk: Desk, expected: int) -> tuple[int, int]:
    """Wait until the sessions have reported their work; returns all updates and the HOT ones."""
    query = "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'app_outbox'"

    def counts() -> tuple[int, int] | None:
        for session in (desk.session.connection, desk.settling.connection):
            session.execute("select 1")  # a session reports when a transaction of it ends
        row = conn.execute(query).fetchone()
        return (int(row[0]), int(row[1])) if row is not None and row[0] >= expected else None

    counted = wait_until(counts, "the statistics have arrived")
    assert counted is not None
    return counted
