"""What the demo reads from the database, through a connection of its own."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from bridge.database.connection import connect
from bridge.database.migrations import Migrator
from bridge.database.template import render_query
from bridge.lifecycle import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection
    from types import TracebackType

SCHEMA = "public"
"""The demo has a database of its own, so it needs no schema of its own."""

_RESCUED = ErrorCode.STUCK_PROCESSING.value


class RowCounts(NamedTuple):
    """The columns of `count_rows.sql`."""

    orders: int
    order_events: int
    enqueued: int
    sent: int
    rescued: int
    rolled_back_enqueued: int
    processed: int
    handled: int


class Observer:
    """Creates the demo's tables and counts what is in them."""

    def __init__(self, url: str) -> None:
        self._conn = connect(url, stage="observe", relay_name="demo")

    def migrate(self) -> int:
        """Apply every migration and create the applications' tables; return how many ran."""
        applied = len(Migrator(self._conn, SCHEMA).up())
        self._conn.execute(_statement("create_tables"))
        return applied

    def sent(self) -> int:
        """Return how many rows are SENT, by the counters."""
        return int(self._rows("count_sent")[0][0])

    def relays(self) -> int:
        """Return how many relays have registered."""
        return int(self._rows("count_relays")[0][0])

    def in_flight(self, relay_name: str, pid: int) -> list[int]:
        """Return the rows that this relay process has claimed and not settled."""
        rows = self._rows("find_flight", {"relay_name": relay_name, "pid": pid})
        return [outbox_id for (outbox_id,) in rows]

    def stranded(self, outbox_ids: Collection[int]) -> int:
        """Return how many of a dead relay's rows nobody has taken back yet."""
        parameters = {"outbox_ids": list(outbox_ids), "rescued_code": _RESCUED}
        return int(self._rows("count_stranded", parameters)[0][0])

    def sessions(self, relay_name: str) -> tuple[int, int]:
        """Return how many database sessions a relay has, and how many run a statement now."""
        pattern = f"outbox-bridge/{relay_name}/%"
        everything, busy = self._rows("count_sessions", {"pattern": pattern})[0]
        return everything, busy

    def counts(self, rolled_back: Collection[str]) -> RowCounts:
        """Count everything exactly; `rolled_back` are keys that must not be there."""
        parameters = {"rolled_back": list(rolled_back), "rescued_code": _RESCUED}
        return RowCounts(*self._rows("count_rows", parameters)[0])

    def keys(self) -> set[str]:
        """Return the keys of all outbox rows."""
        return {key for (key,) in self._rows("list_keys")}

    def _rows(self, name: str, parameters: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        return self._conn.execute(_statement(name), parameters or {}).fetchall()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._conn.close()


def _statement(name: str) -> bytes:
    source = resources.files("bridge.demo").joinpath("queries", f"{name}.sql")
    return render_query(source.read_text(encoding="utf-8"), SCHEMA)
