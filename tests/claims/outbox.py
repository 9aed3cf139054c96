"""The outbox as plain SQL sees it, and what must hold between it and its side tables."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

_keys = itertools.count(1)

_FAULTS = {
    "PENDING row without a queue entry of its destination, time and lane": """
        select o.outbox_id
        from app_outbox as o
        where
            o.status = 'PENDING'
            and not exists (
                select
                from app_outbox_queue as q
                where
                    q.outbox_id = o.outbox_id
                    and q.destination = o.destination
                    and q.next_run_at = o.next_run_at
                    and q.lane is not distinct from hashtext(o.ordering_key) & 63
                    and q.key_hash is not distinct from hashtext(o.ordering_key)
                    and (
                        q.parked is null
                        or q.parked = 'p'
                        or exists (
                            select from app_outbox_hold as h
                            where
                                h.destination = o.destination
                                and h.ordering_key = o.ordering_key
                                and h.boundary < o.outbox_id
                        )
                    )
            )
    """,
    "active hold of a row that has gone on": """
        select h.outbox_id
        from app_outbox_hold as h
        where
            h.released_at is null
            and not exists (
                select from app_outbox as o
                where
                    o.outbox_id = h.outbox_id
                    and o.status in ('PENDING', 'PROCESSING', 'FAILED')
                    and o.destination = h.destination
                    and o.ordering_key = h.ordering_key
            )
    """,
    "counter that differs from the rows": """
        select destination, status, counted.rows, summed.rows
        from (
            select destination::text collate "C" as destination, status::text, count(*) as rows
            from app_outbox
            where status in ('SENT', 'CANCELLED')
            group by 1, 2
        ) as counted
        full join (
            select destination::text, status::text, sum(delta) as rows
            from app_outbox_counter
            group by 1, 2
            having sum(delta) <> 0
        ) as summed using (destination, status)
        where counted.rows is distinct from summed.rows
    """,
    "list of FAILED rows that differs from the rows": """
        (
            select outbox_id, destination::text, event_type::text, last_error_code::text
            from app_outbox
            where status = 'FAILED'
            except
            select outbox_id, destination::text, event_type::text, error_code::text
            from app_outbox_failed
        )
        union all
        (
            select outbox_id, destination::text, event_type::text, error_code::text
            from app_outbox_failed
            except
            select outbox_id, destination::text, event_type::text, last_error_code::text
            from app_outbox
            where status = 'FAILED'
        )
    """,
}

_UNCLAIMED = """
    select o.outbox_id
    from app_outbox as o
    where
        o.status = 'PROCESSING'
        and not exists (
            select from app_outbox_claim as c
            where c.claim_id = o.claim_id and o.outbox_id = any(c.outbox_ids)
        )
"""


def insert(
    conn: psycopg.Connection[Any],
    count: int = 1,
    *,
    destination: str = "orders",
    ordering_key: str | None = None,
    next_run_at: str = "now()",
    status: str = "PENDING",
    payload: str = "{}",
) -> list[int]:
    """Insert rows with one statement; `next_run_at` is an SQL expression."""
    return [
        row[0]
        for row in conn.execute(
            "insert into app_outbox (message_key, event_type, destination, ordering_key, status, "
            "payload_json, next_run_at) "
            f"select %s || n, 'order.created', %s, %s, %s, %s, {next_run_at} "
            "from generate_series(1, %s) as n returning outbox_id",
            [f"key-{next(_keys)}-", destination, ordering_key, status, payload, count],
        )
    ]


def state(conn: psycopg.Connection[Any], outbox_id: int) -> str:
    row = conn.execute("select status from app_outbox where outbox_id = %s", [outbox_id]).fetchone()
    assert row is not None, f"row {outbox_id} is gone"
    return str(row[0])


def states(conn: psycopg.Connection[Any]) -> dict[str, int]:
    return dict(conn.execute("select status, count(*) from app_outbox group by 1").fetchall())


def faults(conn: psycopg.Connection[Any]) -> dict[str, list[Any]]:
    """Tell what the triggers missed; empty when rows and side tables agree."""
    found = {name: conn.execute(query).fetchall() for name, query in _FAULTS.items()}
    return {name: rows for name, rows in found.items() if rows}


def unclaimed(conn: psycopg.Connection[Any]) -> list[int]:
    """Return the PROCESSING rows that no claim names."""
    return [row[0] for row in conn.execute(_UNCLAIMED)]


def count(conn: psycopg.Connection[Any], table: str) -> int:
    row = conn.execute(f"select count(*) from {table}").fetchone()
    assert row is not None
    return int(row[0])


def waits(conn: psycopg.Connection[Any]) -> bool:
    """Tell whether any session of this database waits for a lock."""
    row = conn.execute(
        "select exists(select from pg_stat_activity "
        "where datname = current_database() and wait_event_type = 'Lock')"
    ).fetchone()
    assert row is not None
    return bool(row[0])
