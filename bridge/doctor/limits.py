"""From when on something counts as a problem (pure)."""

from __future__ import annotations

from dataclasses import dataclass

_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Limits:
    """The doctor's thresholds; seconds, bytes and rows."""

    transaction_seconds: float = 300.0
    """A transaction that is open for longer keeps dead rows from being removed."""
    slot_bytes: float = float(_GIB)
    """WAL that a replication slot keeps."""
    slot_transactions: int = 5_000_000
    """Transactions whose dead rows a replication slot keeps."""
    dead_rows: int = 100_000
    """Dead rows of one table, and ten times what autovacuum waits for."""
    hot_updates: int = 10_000
    """Updates from which on their HOT share says something."""
    hot_share: float = 0.9
    clock_seconds: float = 2.0
    queue_ids: int = 20_000
    """Ids looked at from each end of the outbox."""
    notification_queue: float = 0.5
    """Share of the server's queue of notifications in use: a listener does not fetch its own."""
