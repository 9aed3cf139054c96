from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.rows import dict_row

if TYPE_CHECKING:
    from collections.abc import Iterator


class Views:
    """One autocommit connection, and views read as dictionaries."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self.conn = conn

    def read(self, view: str, order: str = "1") -> list[dict[str, Any]]:
        with self.conn.cursor(row_factory=dict_row) as cursor:
            query = f"select * from {view} order by {order}"
            return cursor.execute(query.encode()).fetchall()

    def statuses(self) -> dict[str, int]:
        return {row["status"]: row["messages"] for row in self.read("outbox_by_status")}

    def destinations(self) -> dict[str, dict[str, Any]]:
        return {row["destination"]: row for row in self.read("outbox_by_destination")}


@pytest.fixture
def views(database_url: str) -> Iterator[Views]:
    with psycopg.connect(database_url, autocommit=True) as conn:
        yield Views(conn)
