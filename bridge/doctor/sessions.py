"""Checks of what others keep open: transactions, prepared ones, replication slots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.doctor.finding import Outcome, ok, problem, unknown
from bridge.doctor.words import counted, size, span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.doctor.database import Database

_USELESS = frozenset({"unreserved", "lost"})


def long_transactions(database: Database) -> Iterator[Outcome]:
    """Whether somebody keeps a transaction, and with it dead rows or locks, for too long."""
    limit = database.limits.transaction_seconds
    with database.transaction():
        rows = database.rows("list_transactions", {"seconds": limit})
    found = [row for row in rows if not row.is_hidden]
    for row in found:
        yield problem(_who(row), _end(row))
    hidden = len(rows) - len(found)
    if hidden:
        yield unknown(
            f"{counted(hidden, 'session')} of other users hide how long they have been open",
            "Ask as a member of pg_read_all_stats (pg_monitor), or as outbox_relay after "
            "roles.sql.",
        )
    elif not found:
        yield ok(f"no transaction is open for longer than {span(limit)}")


def replication_slots(database: Database) -> Iterator[Outcome]:
    """Whether a slot that nobody reads fills the disk with WAL, or keeps dead rows."""
    limits = database.limits
    with database.transaction():
        slots = database.rows("list_slots")
    good = True
    for slot in slots:
        name = f"{slot.slot_type} slot {slot.slot_name}"
        reader = "is read" if slot.active else "is read by nobody"
        drop = (
            f"If nobody needs it: pg_drop_replication_slot('{slot.slot_name}'). The bridge "
            "has no slot of its own. Else see why its reader does not move on; "
            "max_slot_wal_keep_size keeps the disk from filling up."
        )
        if slot.wal_status in _USELESS:
            good = False
            state = "is of no use any more" if slot.wal_status == "lost" else "is about to be lost"
            yield problem(f"{name} {state}: WAL that its reader needs is gone or will be", drop)
        elif slot.kept_bytes > limits.slot_bytes:
            good = False
            yield problem(f"{name} keeps {size(slot.kept_bytes)} of WAL and {reader}", drop)
        elif slot.kept_transactions > limits.slot_transactions:
            good = False
            yield problem(
                f"{name} keeps the dead rows of {slot.kept_transactions:,} transactions and "
                f"{reader}",
                drop,
            )
    if good:
        most = max((slot.kept_bytes for slot in slots), default=0.0)
        yield ok(
            f"{counted(len(slots), 'slot')}, {size(most)} of WAL kept at most"
            if slots
            else "there are no replication slots"
        )


def _who(row: Any) -> str:
    if row.state == "prepared":
        return (
            f"{row.application_name} of {row.user_name} has been waiting for COMMIT PREPARED for "
            f"{span(row.seconds)}: it keeps its locks and every dead row since"
        )
    keeps = "keeps a snapshot, so dead rows stay" if row.holds_snapshot else "holds no snapshot now"
    if row.has_written:
        keeps += "; it has written, so its rows are locked"
    who = f"{row.user_name} with {row.application_name or 'a client without name'}"
    return (
        f"{who} (pid {row.pid}, {row.client}) has had a transaction open for "
        f"{span(row.seconds)}, {row.state}: it {keeps}"
    )


def _end(row: Any) -> str:
    if row.state == "prepared":
        gid = row.application_name.removeprefix("prepared transaction ")
        return f"Ask its owner; then commit prepared '{gid}' or rollback prepared '{gid}'."
    return (
        f"Ask its owner; else select pg_terminate_backend({row.pid}). For the future: "
        "idle_in_transaction_session_timeout for that user."
    )
