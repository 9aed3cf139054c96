from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    import psycopg


class Fields(TypedDict):
    message_key: str
    event_type: str
    destination: str


def fields(key: str = "order-1", **other: str) -> Fields:
    """The fields that every message needs."""
    return {"message_key": key, "event_type": "order.created", "destination": "orders", **other}  # type: ignore[typeddict-item]


def keys(conn: psycopg.Connection[tuple[Any, ...]]) -> list[str]:
    """The keys in the outbox that this session sees, by id."""
    rows = conn.execute("select message_key from public.app_outbox order by outbox_id").fetchall()
    return [row[0] for row in rows]


def queued(conn: psycopg.Connection[tuple[Any, ...]]) -> list[str]:
    """The keys with a queue entry."""
    rows = conn.execute(
        "select o.message_key from public.app_outbox as o"
        " join public.app_outbox_queue as q using (outbox_id) order by outbox_id"
    ).fetchall()
    return [row[0] for row in rows]
