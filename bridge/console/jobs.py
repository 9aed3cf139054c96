"""Actions under way: each runs in a thread of its own, and its page tells how far it is."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from bridge.errors import OutboxError

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.operations import Outcome

    Work = Callable[[str, Callable[[Outcome], None]], Outcome]
    """Gets the job's key and tells of the outcome so far."""

_KEPT = 200
_AT_ONCE = 4
_STOP_SECONDS = 15.0


class JobState(StrEnum):
    """What a job is doing."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(slots=True)
class Job:
    """One action. `outcome` grows batch by batch; what is done stays done in every state."""

    key: str
    title: str
    reason: str
    login: str
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    ended_at: datetime | None = None
    state: JobState = JobState.RUNNING
    outcome: Outcome | None = None
    error: str = ""
    ended: threading.Event = field(default_factory=threading.Event)


class _Stop(Exception):  # noqa: N818 - ends a run between two batches
    """Somebody asked the job to end."""


class TooManyJobs(OutboxError):  # noqa: N818 - what happened
    """As many actions as may run at once are running."""


class Jobs:
    """Runs actions and remembers the latest ones; safe to use from several threads."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._threads: dict[str, threading.Thread] = {}
        self._stops: set[str] = set()
        self._lock = threading.Lock()

    def start(self, work: Work, *, title: str, reason: str, login: str) -> Job:
        """Run `work` in a thread. Raises TooManyJobs."""
        job = Job(secrets.token_urlsafe(9), title, reason, login)
        with self._lock:
            if len(self._threads) >= _AT_ONCE:
                raise TooManyJobs(
                    f"{_AT_ONCE} actions are running, no more run at once; wait for one to end"
                )
            self._jobs[job.key] = job
            while len(self._jobs) > _KEPT:
                self._jobs.popitem(last=False)
            thread = threading.Thread(target=self._run, args=(job, work), name=f"job-{job.key}")
            self._threads[job.key] = thread
        thread.start()
        return job

    def get(self, key: str) -> Job | None:
        """Return a job; None where it is unknown or forgotten."""
        with self._lock:
            return self._jobs.get(key)

    def stop(self, key: str) -> None:
        """Ask a job to end after the batch that is under way."""
        with self._lock:
            if key in self._threads:
                self._stops.add(key)

    def close(self) -> None:
        """Ask all to end and wait for it."""
        with self._lock:
            threads = dict(self._threads)
            self._stops.update(threads)
        for thread in threads.values():
            thread.join(_STOP_SECONDS)

    def _run(self, job: Job, work: Work) -> None:
        def on_batch(outcome: Outcome) -> None:
            job.outcome = outcome
            if job.key in self._stops:
                raise _Stop

        try:
            job.outcome = work(job.key, on_batch)
        except _Stop:
            job.state = JobState.STOPPED
        except OutboxError as error:
            job.state, job.error = JobState.FAILED, str(error)
        except Exception as error:  # noqa: BLE001 - a thread's outermost edge: the page tells it
            job.state = JobState.FAILED
            job.error = f"unexpected {type(error).__name__}: {error}"
        else:
            job.state = JobState.DONE
        finally:
            job.ended_at = datetime.now(UTC)
            with self._lock:
                self._threads.pop(job.key, None)
                self._stops.discard(job.key)
            job.ended.set()
