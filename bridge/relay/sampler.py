"""Samples the backlog for the metrics of the whole database; one relay does it, the leader."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import structlog

from bridge.database.connection import connect, first_line
from bridge.database.statements import load
from bridge.errors import OutboxError
from bridge.monitor import Backlog, snapshot

if TYPE_CHECKING:
    from bridge.settings import Settings

LEAD_INTERVAL = 5.0
"""Seconds between two looks at who leads."""
_TICK = 0.2
_SHARE = 10
"""A sample that took a time is followed by so many times that time without one."""
_STALE = 3
"""A sample older than so many intervals says nothing any more."""
_CANCEL_WAIT = 2.0


@dataclass(frozen=True, slots=True)
class Sample:
    """The backlog of one moment, and held keys and their parked followers by destination.

    `taken_at` is monotonic; `seconds` is how long it took, `pause` how long until the next one.
    """

    backlog: Backlog
    holds: dict[str, tuple[int, int]]
    taken_at: float
    seconds: float
    pause: float


class Sampler:
    """The thread that samples while this relay leads, by a connection that it has only then.

    Its own, because a backlog of millions takes seconds to count, and rescue must not wait for
    that. What it spends grows with the backlog; it rests ten times as long as it worked.
    """

    def __init__(self, settings: Settings) -> None:
        self._url = settings.database_url
        self._schema = settings.database.schema_name
        self._relay_name = settings.relay.name
        self._interval = settings.metrics.sample_interval
        self._leading = threading.Event()
        self._stop = threading.Event()
        self._latest: Sample | None = None
        self._connection: psycopg.Connection[Any] | None = None
        self._is_asking = False
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="outbox-bridge-sample", daemon=True)
        self._log = structlog.get_logger("bridge.relay.sampler")

    @property
    def is_leading(self) -> bool:
        """Tell whether this relay is the one that samples."""
        return self._leading.is_set()

    def current(self) -> Sample | None:
        """Return the last sample; None where this relay does not lead, or it says nothing now."""
        sample = self._latest
        if sample is None or not self._leading.is_set():
            return None
        return None if self.age(sample) > _STALE * sample.pause else sample

    def age(self, sample: Sample) -> float:
        """Return how old a sample is, in seconds."""
        return time.monotonic() - sample.taken_at

    def lead(self, *, leads: bool) -> None:
        """Hear whether this relay leads, from the thread of the duties."""
        if leads:
            self._leading.set()
        else:
            self._leading.clear()
            self._latest = None

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, also amid a statement; does not wait for a server that does not answer."""
        self._stop.set()
        connection = self._connection
        if connection is not None and self._is_asking:
            try:
                connection.cancel_safe(timeout=_CANCEL_WAIT)
            except psycopg.Error:
                self._log.debug("the sample cannot be cancelled")
        if self._thread.is_alive():
            self._thread.join(_CANCEL_WAIT)

    def _run(self) -> None:
        while not self._stop.is_set():
            if not self._leading.is_set():
                self._disconnect()
                self._leading.wait(_TICK)
                continue
            pause = self._interval
            try:
                sample = self._take()
            except (psycopg.Error, OutboxError) as error:
                self._disconnect()
                self._tell_failure(error)
            else:
                pause = sample.pause
                self._latest = sample if self._leading.is_set() else None
                if self._failing:
                    self._log.info("the backlog is sampled again")
                    self._failing = False
            self._stop.wait(pause)
        self._disconnect()

    def _take(self) -> Sample:
        if self._connection is None:
            self._connection = connect(self._url, stage="sample", relay_name=self._relay_name)
            self._connection.prepare_threshold = None  # behind a pooler nothing may be prepared
        started = time.monotonic()
        self._is_asking = True
        try:
            backlog = snapshot(self._connection, self._schema)
            holds = self._connection.execute(
                load("count_holds_by_destination", self._schema)
            ).fetchall()
        finally:
            self._is_asking = False
        seconds = time.monotonic() - started
        return Sample(
            backlog,
            {name: (keys, followers) for name, keys, followers in holds},
            taken_at=started,
            seconds=seconds,
            pause=max(self._interval, _SHARE * seconds),
        )

    def _tell_failure(self, error: BaseException) -> None:
        if not self._failing and not self._stop.is_set():
            self._log.warning(
                "the backlog cannot be sampled, tried again", reason=first_line(error)
            )
        self._failing = True

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
