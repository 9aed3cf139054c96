"""One relay's side of the database, without Kafka: what it claims, the test acknowledges."""

from __future__ import annotations

import threading
import uuid
from typing import TYPE_CHECKING, Any

import psycopg

from bridge.database.arrays import array
from bridge.database.session import Session
from bridge.database.template import advisory_class
from bridge.lifecycle import RESCUED_MESSAGE, ErrorCode
from bridge.relay.admission import Admission
from bridge.relay.batch import Ack, Batch, Unsent
from bridge.relay.breakers import Breakers
from bridge.relay.claimer import Claimer, Run
from bridge.relay.flight import Flight
from bridge.relay.lanes import Lanes
from bridge.relay.reconciler import Reconciler
from bridge.relay.registration import Registration
from bridge.relay.rescuer import Rescuer
from bridge.relay.settlement import Failed, Failure, Settlement
from bridge.relay.tally import RelayReport
from bridge.retry import Backoff
from bridge.settings import Settings
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bridge.message import ClaimedRow

WHOLE = -(1 << 63)
"""Cursor before every row."""


def settings_for(url: str, name: str = "desk", **relay: Any) -> Settings:
    """Settings of a relay that never meets Kafka."""
    return Settings.model_validate(
        {
            "database": {"url": url},
            "kafka": {"bootstrap_servers": "unused:9092"},
            "relay": {"name": name, **relay},
        }
    )


class OpenBreakers(Breakers):
    """Lets everything flow, as when Kafka is well."""

    def allowance(self, destination: str, most: int) -> int:
        del destination
        return most


class Desk:
    """A registered relay whose stages are called one by one."""

    def __init__(self, url: str, name: str = "desk", **relay: Any) -> None:
        self.settings = settings_for(url, name, **relay)
        self.session = self.open_session("claim")
        self.settling = self.open_session("settle")
        self.failures: list[tuple[str, BaseException]] = []
        self.registration = Registration(
            self.settings, name, url, lambda *failure: self.failures.append(failure)
        )
        self.registration.start()
        self.flight = Flight(100_000, 1 << 30)
        self.report = RelayReport()
        self.admission = Admission(self.flight, OpenBreakers())
        self.claimer = Claimer(
            self.settings,
            self.session,
            self.registration,
            self.flight,
            Run(),
            admission=self.admission,
        )
        self.settlement = Settlement(self.settling, Backoff(jitter=0.0))
        self.lanes = Lanes(
            self.session, self.registration, self.flight, advisory_class("lanes", "public")
        )
        self.rescuer = Rescuer(self.settings, self.session, self.registration, self.report)
        self.reconciler = Reconciler(self.settling)
        self.dead = False

    @property
    def relay_id(self) -> int:
        return self.registration.relay_id

    def open_session(self, stage: str, lock_timeout: float | None = None) -> Session:
        """A connection as each stage has its own."""
        url = self.settings.database.url
        session = Session(
            url.get_secret_value() if url else None,
            schema="public",
            stage=stage,
            relay_name=self.settings.relay.name,
            lock_timeout=self.settings.relay.lock_timeout if lock_timeout is None else lock_timeout,
        )
        session.open()
        return session

    def parameters(self, claim_id: str) -> dict[str, Any]:
        return {
            "claim_id": claim_id,
            "relay_id": self.relay_id,
            "relay_name": self.settings.relay.name,
            "inline_bytes": self.settings.relay.inline_payload_bytes,
        }

    def where(
        self,
        destinations: Sequence[str],
        rows: int = 1000,
        after: tuple[int, int] = (WHOLE, WHOLE),
        quota: int | None = None,
    ) -> dict[str, Any]:
        return {
            "destinations": list(destinations),
            "after_times": [after[0]] * len(destinations),
            "after_ids": [after[1]] * len(destinations),
            "quotas": [quota or rows] * len(destinations),
            "batch_rows": rows,
        }

    def claim(
        self,
        destinations: Sequence[str] = ("orders",),
        rows: int = 1000,
        statement: str = "claim_rows",
        **where: Any,
    ) -> Batch:
        """Claim unordered rows with one statement, from the beginning on."""
        claim_id = str(uuid.uuid4())
        parameters = self.parameters(claim_id) | self.where(destinations, rows, **where)
        return self.batch(claim_id, self.session.rows(statement, parameters))

    def claim_ordered(
        self,
        lanes: Sequence[int] | None = None,
        rows: int = 1000,
        lane_quota: int = 1000,
        destinations: Sequence[str] | None = None,
        quotas: Sequence[int] | None = None,
    ) -> Batch:
        """Claim ordered rows with one statement; from all destinations unless some are named."""
        if destinations is None:
            destinations = self.session.rows("find_destinations")[0][1]
        claim_id = str(uuid.uuid4())
        parameters = self.parameters(claim_id) | {
            "lanes": array(range(64) if lanes is None else lanes),
            "lane_quota": lane_quota,
            "destinations": list(destinations),
            "quotas": array(quotas or [rows] * len(destinations)),
            "batch_rows": rows,
        }
        return self.batch(claim_id, self.session.rows("claim_ordered", parameters))

    def claim_suspect(
        self, lanes: Sequence[int] | None = None, closed: Sequence[str] = ()
    ) -> Batch:
        """Claim one row whose relays kept dying."""
        claim_id = str(uuid.uuid4())
        parameters = self.parameters(claim_id) | {
            "lanes": array(range(64) if lanes is None else lanes),
            "shut": list(closed),
            "most_deaths": 1000,
        }
        return self.batch(claim_id, self.session.rows("claim_suspect", parameters))

    def return_followers(self, steps: int = 100) -> int:
        """Let followers of released keys come back; returns how many came."""
        return sum(self.claimer.holds.step(range(64), self.relay_id) for _ in range(steps))

    @staticmethod
    def batch(claim_id: str, rows: list[Any]) -> Batch:
        claimed: list[ClaimedRow] = [row for row in rows if row[0] is not None]
        claimed.sort(key=lambda row: row[0])
        return Batch(claim_id, claimed)

    def take_all_lanes(self) -> None:
        self.session.rows("take_lanes", {"lanes": list(range(64)), "relay_id": self.relay_id})

    def look(self, rows: int) -> list[int]:
        """Let the claimer look once at all destinations; returns what it claimed."""
        self.claimer._search(force=True)
        self.claimer._admission.begin()
        return self._looked(lambda: self.claimer._look(rows))

    def look_again(self, rows: int) -> list[int]:
        """Let the claimer look once more, without a search for destinations."""
        self.claimer._admission.begin()
        return self._looked(lambda: self.claimer._look(rows))

    def look_ordered(self, rows: int) -> list[int]:
        self.claimer._search(force=True)
        return self._looked(lambda: self.claimer._look_ordered(rows))

    def _looked(self, look: Any) -> list[int]:
        before = self.flight.claims()
        look()
        return sorted(
            row[0]
            for batch in self.flight.batches()
            if batch.claim_id not in before
            for row in batch.rows
        )

    def settle(self, batch: Batch, only: Iterable[int] | None = None) -> int:
        """Acknowledge the rows of a batch; returns how many became SENT."""
        chosen = set(ids(batch) if only is None else only)
        acks = [
            Ack(row[0], position % 6, position, batch)
            for position, row in enumerate(batch.rows)
            if row[0] in chosen
        ]
        batch.open -= len(acks)
        return self.settlement.mark_sent(acks, [batch] if batch.open == 0 else [])

    def settle_all(self) -> None:
        """Acknowledge everything that the claimer has put into the flight."""
        for batch in self.flight.batches():
            self.settle(batch)
            batch.open = len(batch.rows)  # it is the flight that counts them out here
            self.flight.leave([(row[0], batch) for row in batch.rows])

    def fail(self, batch: Batch, *, final: bool = False, code: str = "UNKNOWN") -> Failed:
        failures = [Failure(row[0], code, "because", final, batch) for row in batch.rows]
        return self.settlement.mark_failed(failures)

    def release(self, batch: Batch) -> None:
        self.settlement.release([Unsent(row[0], batch) for row in batch.rows])
        self.settlement.delete_claims([batch])

    def rescue(self, batch: Batch, session: Session | None = None) -> tuple[int, int]:
        """Take a claim back; how many rows came back and how many could not."""
        rescued, remaining = (session or self.session).rows(
            "rescue_claim",
            {
                "claim_id": batch.claim_id,
                "error_code": ErrorCode.STUCK_PROCESSING,
                "error_message": RESCUED_MESSAGE,
            },
        )[0]
        return rescued, remaining

    def freeze(self) -> None:
        """Let the heart beat no more."""
        self.registration._stop.set()
        self.registration._thread.join()

    def die(self) -> None:
        """Lose every connection, as a killed process does."""
        self.dead = True
        self.freeze()
        self.registration._session.close()
        self.session.close()
        self.settling.close()
        wait_until(self._is_gone, "its sessions have ended")

    def _is_gone(self) -> bool:
        # A server process, and the lock that it holds, end a moment after its client.
        url = self.settings.database.url
        assert url is not None
        with psycopg.connect(url.get_secret_value()) as conn:
            left = conn.execute(
                "select from pg_stat_activity where datname = current_database() "
                "and application_name like %s",
                [f"outbox-bridge/{self.settings.relay.name}/%"],
            ).fetchall()
        return not left

    def close(self) -> None:
        assert self.failures == []
        if not self.dead:
            self.registration.stop()
            self.session.close()
            self.settling.close()


def ids(batch: Batch) -> list[int]:
    return [row[0] for row in batch.rows]


class InBackground:
    """A call on a thread of its own, whose outcome is asked for later."""

    def __init__(self, work: Any) -> None:
        self._work = work
        self._outcome: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._outcome = self._work()
        except BaseException as error:  # noqa: BLE001 - handed to the caller of result()
            self._error = error

    def result(self, timeout: float = 60.0) -> Any:
        self._thread.join(timeout)
        assert not self._thread.is_alive(), "still running"
        if self._error is not None:
            raise self._error
        return self._outcome
