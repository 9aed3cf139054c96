"""Notes what is in flight while a fault lasts: the bound of its duplicates."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

import psycopg

from tests.fixtures.relays import PATIENCE, Outbox
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from types import TracebackType

_INTERVAL = 0.05
_IN_FLIGHT = """
    select o.outbox_id
    from app_outbox_claim as c
    cross join lateral unnest(c.outbox_ids) as claimed (outbox_id)
    join app_outbox as o on o.outbox_id = claimed.outbox_id and o.claim_id = c.claim_id
    where o.status = 'PROCESSING' and (
        %s::text is null
        or c.relay_id in (select relay_id from app_outbox_relay where relay_name = %s)
    )
"""


class Watch:
    """The rows that were claimed and unsettled at the fault, or at any moment while it lasted.

    A fault that ends a process is looked at once, when its sessions are gone (`note`). One that
    lasts is followed (`with watch.follow(…)`) until everything it caught has an outcome, since rows
    that are claimed before it is noticed are in flight as well. With a relay's name only its
    claims.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self.outbox_ids: set[int] = set()

    def note(self, relay: str | None = None) -> None:
        """Look once."""
        outbox = Outbox(self._url)
        try:
            self._look(outbox, relay)
        finally:
            outbox.close()

    def follow(self, relay: str | None = None) -> _Following:
        """Look again and again in a thread until the end of the `with` block."""
        return _Following(self, self._url, relay)

    def _look(self, outbox: Outbox, relay: str | None) -> None:
        self.outbox_ids.update(row[0] for row in outbox.query(_IN_FLIGHT, relay, relay))


class _Following:
    def __init__(self, watch: Watch, url: str, relay: str | None) -> None:
        self._watch = watch
        self._url = url
        self._relay = relay
        self._stop = threading.Event()
        self._looked = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def _follow(self) -> None:
        while not self._stop.is_set():
            try:
                outbox = Outbox(self._url)
            except psycopg.OperationalError:
                self._stop.wait(_INTERVAL)  # the database itself is the fault
                continue
            try:
                while not self._stop.wait(_INTERVAL):
                    self._watch._look(outbox, self._relay)
                    self._looked.set()
            except psycopg.OperationalError:
                continue
            finally:
                outbox.close()

    def __enter__(self) -> Self:
        self._thread.start()
        self._looked.wait(10)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._watch.note(self._relay)
                self._await_outcomes(frozenset(self._watch.outbox_ids))
        finally:
            self._stop.set()
            self._thread.join()

    def _await_outcomes(self, outbox_ids: frozenset[int]) -> None:
        """Until these have an outcome the producer still suffers from the fault that is over."""
        outbox = Outbox(self._url)
        try:
            wait_until(
                lambda: (
                    not outbox.value(
                        "select count(*) from app_outbox "
                        "where outbox_id = any(%s) and status = 'PROCESSING'",
                        list(outbox_ids),
                    )
                ),
                "what was in flight at the fault has an outcome",
                PATIENCE,
            )
        finally:
            outbox.close()
