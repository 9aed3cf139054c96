"""Deletes rows that have been at their end for long enough, in small steps by id."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import structlog

from bridge.database.arrays import array
from bridge.lifecycle import Status
from bridge.relay.archive import ArchiveFile

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.database.session import Session
    from bridge.settings import RetentionSettings

DAY = 86_400.0

_BEFORE_ALL = -(1 << 63)
_SHARE = 0.1
"""Part of the time that pruning may take, so that it costs the relays and writers little."""
_LEAST_PAUSE = 0.02


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many rows were deleted (or, in a dry run, would be), by their last status."""

    sent: int = 0
    cancelled: int = 0
    failed: int = 0

    @property
    def rows(self) -> int:
        """All of them."""
        return self.sent + self.cancelled + self.failed

    def __add__(self, other: Pruned) -> Pruned:
        return Pruned(
            self.sent + other.sent, self.cancelled + other.cancelled, self.failed + other.failed
        )


class Pruner:
    """Walks the outbox by id and deletes what retention does not keep; locked rows wait.

    Ids grow with time, so a round ends at the first step in which no row was enqueued long enough
    ago, and the next one begins at the first row that will be prunable by growing older. Rows left
    behind that place (sent very late, retried, locked) are found by the round that begins at the
    lowest id, once a day. No index is needed for any of it, and a round that finds nothing costs
    one look. Each step is a transaction of its own: rows are locked, archived where asked,
    deleted; rows that somebody else has locked wait.
    """

    def __init__(self, session: Session, settings: RetentionSettings) -> None:
        self._session = session
        self._settings = settings
        self._ages = {"sent_seconds": settings.sent, "failed_seconds": settings.failed}
        file = settings.archive_file if settings.archive == "file" else None
        self._file = ArchiveFile(file) if file is not None else None
        self._after = self._floor = _BEFORE_ALL
        self._is_done = True
        self._next_walk = time.monotonic() + DAY
        self._found = Pruned()
        self._log = structlog.get_logger("bridge.relay.pruner")
        self.is_amid_a_round = False

    def go_on(self) -> float | None:
        """Do one step of a round; returns the seconds to wait until the next, None: a new round."""
        if self._settings.sent is None and self._settings.failed is None:
            return None
        started = time.monotonic()
        if not self.is_amid_a_round:
            if started >= self._next_walk:
                self._floor = _BEFORE_ALL
                self._next_walk = started + DAY
            self._after, self._is_done, self._found = self._floor, True, Pruned()
        self.is_amid_a_round = False  # a step that fails ends the round
        step = self._step(self._after, self._settings.batch_rows)
        self._found += step.pruned
        self._after = step.last_id
        self._is_done &= step.is_done
        if self._is_done:
            self._floor = step.last_id
        if step.is_last:
            if self._found.rows:
                self._log.info("rows pruned", **asdict(self._found))
            return None
        self.is_amid_a_round = True
        return _pause(started)

    def run(
        self,
        *,
        dry_run: bool = False,
        limit: int | None = None,
        on_step: Callable[[Pruned], None] = lambda _so_far: None,
    ) -> Pruned:
        """Do one whole round from the lowest id on, at most `limit` rows, with the same pauses."""
        total = Pruned()
        after = _BEFORE_ALL
        is_last = self._settings.sent is None and self._settings.failed is None
        while not is_last and (limit is None or total.rows < limit):
            started = time.monotonic()
            most = None if limit is None else limit - total.rows
            step = self._step(after, self._settings.batch_rows, most=most, dry_run=dry_run)
            total, after, is_last = total + step.pruned, step.last_id, step.is_last
            on_step(total)
            if not (dry_run or is_last):
                time.sleep(_pause(started))
        return total

    def tidy(self) -> None:
        """Prune the audit table and merge old counters, as far as the settings ask for it."""
        if self._settings.counters is not None:
            self._session.run("merge_counters", {"seconds": self._settings.counters})
        self.prune_audit()

    def prune_audit(self) -> int:
        """Delete audit entries past their age; returns how many."""
        if self._settings.audit is None:
            return 0
        days = {"older_than_days": int(self._settings.audit // DAY)}
        pruned: int = self._session.value("prune_audit", days)
        if pruned:
            self._log.info("audit entries pruned", entries=pruned)
        return pruned

    def _step(
        self, after: int, rows: int, *, most: int | None = None, dry_run: bool = False
    ) -> _Step:
        """Look at the next `rows` rows and prune those that may go, `most` at most."""
        look = {"after_id": after, "step_rows": rows, **self._ages}
        looked_at, last_id, old, to_come, ids, statuses = self._session.rows("find_prunable", look)[
            0
        ]
        if not old:
            return _Step(Pruned(), after, is_done=False, is_last=True)
        if dry_run:
            pruned = _count(statuses[:most])
        else:
            chosen = array(ids[:most])
            pruned = self._session.in_transaction(lambda: self._delete(chosen)) if ids else Pruned()
        return _Step(pruned, last_id, is_done=not to_come, is_last=looked_at < rows)

    def _delete(self, ids: str) -> Pruned:
        session = self._session
        locked = session.rows("lock_prunable", {"outbox_ids": ids, **self._ages})
        if not locked:
            return Pruned()
        chosen: dict[str, Any] = {"outbox_ids": array(row[0] for row in locked)}
        if self._file is not None:
            self._file.append(row[0] for row in session.stream("read_prunable", chosen))
        in_table = self._settings.archive == "table"
        session.rows("prune_rows", chosen | {"keep_in_archive": in_table})
        return _count([row[1] for row in locked])


@dataclass(frozen=True, slots=True)
class _Step:
    pruned: Pruned
    last_id: int
    is_done: bool
    """Nothing in it will be prunable by growing older."""
    is_last: bool


def _count(statuses: list[str]) -> Pruned:
    return Pruned(
        statuses.count(Status.SENT), statuses.count(Status.CANCELLED), statuses.count(Status.FAILED)
    )


def _pause(started: float) -> float:
    """Return how long to rest after work that began at a monotonic time."""
    return max(_LEAST_PAUSE, (time.monotonic() - started) * (1 / _SHARE - 1))
