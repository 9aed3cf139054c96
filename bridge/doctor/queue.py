"""Checks of the work itself: side tables in step with the rows, and relays that do it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.doctor.finding import Outcome, ok, problem
from bridge.doctor.words import counted, listed, span
from bridge.monitor import RelayState
from bridge.monitor import relays as registered_relays

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.doctor.database import Database

_LOWEST = -(1 << 63)
_REPAIR = "outbox-bridge repair (writers and relays go on meanwhile; a second run finds nothing)"


def queue(database: Database) -> Iterator[Outcome]:
    """Whether `repair` would find work among the oldest and the newest rows."""
    looked = unqueued = unclaimed = unlisted = 0
    with database.transaction():
        for first, last in _ends(database):
            found = database.row("find_unqueued", {"first_id": first, "last_id": last})
            looked += found.looked_at
            unqueued += found.unqueued
            unclaimed += found.unclaimed
            unlisted += found.unlisted
        strays = database.row("find_strays", {"row_limit": database.limits.queue_ids})
    faults = (
        (unqueued, "PENDING without queue entry: no relay finds them"),
        (unclaimed, "PROCESSING without claim: nobody takes them back"),
        (unlisted, "FAILED and missing in the list of failures"),
        (strays.mislisted, "in the list of failures, though not FAILED"),
        (strays.stranded, "waiting for a key that nothing holds"),
    )
    wrong = [f"{counted(number, 'row')} {what}" for number, what in faults if number]
    if wrong:
        yield problem(
            "; ".join(wrong) + f" (looked at {counted(looked, 'row')} at both ends of the table). "
            "That happens where triggers were off: a restore, session_replication_role, "
            "logical replication.",
            _REPAIR,
        )
    else:
        yield ok(f"rows and side tables agree, as far as {counted(looked, 'row')} tell")


def _ends(database: Database) -> list[tuple[int, int]]:
    """Return the ranges of ids to look at: the oldest and the newest."""
    found = database.rows("find_id_range", {"from_id": _LOWEST})
    if not found:
        return []
    first, last = found[0]
    step = database.limits.queue_ids
    if last - first < 2 * step:
        return [(first, last)]
    return [(first, first + step - 1), (last - step + 1, last)]


def relays(database: Database) -> Iterator[Outcome]:
    """Whether somebody sends what waits, and claims of the dead are taken back."""
    with database.transaction():
        known = registered_relays(database.conn, database.schema)
        stuck = database.rows("list_stuck")
        backlog = database.rows("read_backlog")
    living = [relay for relay in known if relay.state is RelayState.LIVING]
    frozen = [relay for relay in known if relay.state is RelayState.FROZEN]
    due = sum(row.due for row in backlog)
    good = True
    if due and not living:
        good = False
        oldest = max((row.oldest_unsent_seconds or 0.0 for row in backlog), default=0.0)
        yield problem(
            f"{counted(due, 'row is', 'rows are')} due, the oldest for {span(oldest)}, and no "
            "relay "
            "lives",
            "Start one: outbox-bridge relay. If it ends at once, its log says why.",
        )
    for relay in frozen:
        good = False
        yield problem(
            f"relay {relay.relay_name} (pid {relay.pid} on {relay.host}) has a session, but no "
            f"heartbeat for {span(relay.silent_seconds)}",
            "Look at that process: stopped, swapped out, starved of CPU? Restart it.",
        )
    for row in stuck:
        good = False
        yield problem(
            f"{counted(row.messages, 'row')} claimed {span(row.oldest_seconds)} ago by "
            f"{row.relay_name or 'a relay that is gone'} ({row.relay_state}) without an outcome",
            "Of a dead relay: any living one takes them back within seconds. Of a living one: "
            "Kafka does "
            "not acknowledge; see the verdicts on Kafka and outbox-bridge top.",
        )
    if good:
        names = listed([relay.relay_name for relay in living])
        yield ok(f"living: {names}" if living else "no relay lives, and nothing is due")
