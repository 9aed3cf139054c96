"""Databases that hold many SENT rows, and statistics that tell the planner something else."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge.database.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.postgres import PostgresServer

TABLES = ("app_outbox", "app_outbox_queue", "app_outbox_claim", "app_outbox_failed")

_LOAD = """
    set session_replication_role = replica;
    insert into app_outbox (message_key, event_type, destination, payload_json, status, claim_id,
        claim_count, sent_partition, sent_offset, sent_at)
    select 'sent-' || n, 'order.created', 'orders', '{}', 'SENT', gen_random_uuid(), 1, 0, n, now()
    from generate_series(1, %(rows)s) as n;
    set session_replication_role = origin;
"""

_SPREAD_OVER_TABLES = "relname like 'app_outbox%' and relnamespace = 'public'::regnamespace"

_KINDS = {
    "never analyzed": "-1",
    "analyzed when empty": "0",
    "analyzed when all were SENT": None,
    "outbox analyzed when all were SENT": None,
    "analyzed now": None,
}


@dataclass
class Stage:
    """A relay's session in a database of `size` SENT rows, beside which few wait."""

    url: str
    size: int
    session: Session
    pending: list[int]
    ordered: list[int]
    claims: list[str]
    claimed: list[int]


@pytest.fixture(
    scope="module", params=[1_000, 10_000, 100_000, 1_000_000], ids=lambda n: f"{n:_}-sent"
)
def crowd(request: pytest.FixtureRequest, postgres: PostgresServer) -> Iterator[tuple[str, int]]:
    """A database with many SENT rows, loaded once for all tests of a module."""
    size: int = request.param
    url = postgres.create_database(postgres.migrated_template())
    with psycopg.connect(url, autocommit=True) as conn:
        for table in TABLES:
            conn.execute(f"alter table {table} set (autovacuum_enabled = false)")
        psycopg.ClientCursor(conn).execute(_LOAD, {"rows": size})
    yield url, size
    postgres.drop_database(url)


@pytest.fixture(scope="module", params=list(_KINDS))
def stage(request: pytest.FixtureRequest, crowd: tuple[str, int]) -> Iterator[Stage]:
    """The session that a relay has, after the statistics were made what the parameter says."""
    kind: str = request.param
    url, size = crowd
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("delete from app_outbox where status <> 'SENT'")
        conn.execute("truncate app_outbox_queue, app_outbox_claim, app_outbox_failed")
        if kind == "analyzed when all were SENT":
            _analyze(conn)
        if kind == "outbox analyzed when all were SENT":
            conn.execute("vacuum analyze app_outbox")
        pending, ordered, claims, claimed = _open_rows(conn)
        if kind == "analyzed now":
            _analyze(conn)
        if kind == "outbox analyzed when all were SENT":
            conn.execute("analyze app_outbox_queue, app_outbox_claim")
        rows = _KINDS[kind]
        if rows is not None:
            _forget(conn, rows)
    session = Session(url, schema="public", stage="plans", relay_name="plans", lock_timeout=5)
    session.open()
    yield Stage(url, size, session, pending, ordered, claims, claimed)
    session.close()


def _open_rows(
    conn: psycopg.Connection[Any],
) -> tuple[list[int], list[int], list[str], list[int]]:
    numbers = itertools.count(1)

    def insert(rows: int, destination: str, key: str, more: str = "") -> list[int]:
        return [
            row[0]
            for row in conn.execute(
                "insert into app_outbox (message_key, event_type, destination, ordering_key) "
                f"select '{next(numbers)}-' || n, 'order.created', '{destination}', {key} "
                f"from generate_series(1, {rows}) as n {more} returning outbox_id"
            )
        ]

    pending = insert(1500, "orders", "null") + insert(50, "invoices", "null")
    ordered = insert(200, "orders", "'key-' || n % 60")
    claimed = insert(2000, "orders", "null")
    claims: list[str] = []
    for part in (claimed[:1000], claimed[1000:]):
        claims.append(f"00000000-0000-4000-8000-{len(claims):012d}")
        conn.execute(
            "update app_outbox set status = 'PROCESSING', claim_id = %s, claim_count = 1 "
            "where outbox_id = any(%s)",
            [claims[-1], part],
        )
        conn.execute(
            "insert into app_outbox_claim (claim_id, relay_id, outbox_ids) values (%s, 1, %s)",
            [claims[-1], part],
        )
    conn.execute("delete from app_outbox_queue where outbox_id = any(%s)", [claimed])
    conn.execute("update app_outbox_lane set relay_id = 1")
    return pending, ordered, claims, claimed


def _analyze(conn: psycopg.Connection[Any]) -> None:
    for table in TABLES:
        conn.execute(f"vacuum analyze {table}")


def _forget(conn: psycopg.Connection[Any], rows: str) -> None:
    """Put the catalog into the state before any ANALYZE, or after one of the empty tables."""
    conn.execute(
        "delete from pg_statistic where starelid in "
        f"(select oid from pg_class where {_SPREAD_OVER_TABLES})"
    )
    conn.execute(
        f"update pg_class set relpages = 0, reltuples = {rows}, relallvisible = 0 "
        f"where relkind in ('r', 'i') and {_SPREAD_OVER_TABLES}"
    )
