"""The statements that write outcomes, each all or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bridge.lifecycle import Status
from bridge.routing import Router

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bridge.database.session import Session
    from bridge.relay.batch import Ack, Batch, Unsent
    from bridge.retry import Backoff


class Failure(NamedTuple):
    """An attempt that failed. `final`: the message itself is refused, no later attempt can help."""

    outbox_id: int
    code: str
    reason: str
    final: bool
    batch: Batch


class Failed(NamedTuple):
    """What became of a round of failures."""

    retried: int
    failed: int
    held: list[Failure]
    lost: list[int]


class Settlement:
    """Writes outcomes through one session.

    `router` tells where rows went: `sent_topic` records a topic that differs from the destination.
    """

    def __init__(self, session: Session, backoff: Backoff) -> None:
        self._session = session
        self._backoff = backoff
        self.router = Router()

    def mark_sent(self, acks: Sequence[Ack], finished: Iterable[Batch]) -> int:
        """Mark acknowledged rows SENT and delete the claims that are finished.

        `acks` are in id order. Returns how many rows matched; raises LockNotAvailable when another
        transaction held one of them for longer than the lock time-out (nothing was written then).
        """
        numbers: dict[Batch, int] = {}
        claim_numbers = [numbers.setdefault(ack[3], len(numbers) + 1) for ack in acks]
        routed = self.router.renamed()
        parameters = {
            "outbox_ids": array(ack[0] for ack in acks),
            "claim_numbers": array(claim_numbers),
            "partitions": array(ack[1] for ack in acks),
            # Where a retried batch was recognised as a duplicate, the broker tells no offset.
            "offsets": array(ack[2] if ack[2] >= 0 else -1 for ack in acks),
            "claim_ids": [batch.claim_id for batch in numbers],
            "finished_claims": [batch.claim_id for batch in finished],
            "routed_destinations": list(routed),
            "routed_topics": list(routed.values()),
        }
        settled: int = self._session.rows("settle_sent", parameters)[0][0]
        return settled

    def mark_free_sent(self, acks: Sequence[Ack]) -> tuple[int, list[Ack]]:
        """Mark those rows SENT that nobody has locked; returns their number and the other acks."""

        def mark() -> tuple[int, list[Ack]]:
            ids = array(ack[0] for ack in acks)
            free = {row[0] for row in self._session.rows("lock_rows", {"outbox_ids": ids})}
            settled = self.mark_sent([ack for ack in acks if ack[0] in free], ())
            return settled, [ack for ack in acks if ack[0] not in free]

        return self._session.in_transaction(mark)

    def find_lost(self, acks: Sequence[Ack]) -> list[int]:
        """Return the rows among `acks` that did not become SENT under their claim."""
        numbers: dict[Batch, int] = {}
        claim_numbers = [numbers.setdefault(ack[3], len(numbers) + 1) for ack in acks]
        rows = self._session.rows(
            "find_unsettled",
            {
                "outbox_ids": array(ack[0] for ack in acks),
                "claim_numbers": array(claim_numbers),
                "claim_ids": [batch.claim_id for batch in numbers],
            },
        )
        return [row[0] for row in rows]

    def mark_failed(self, failures: Sequence[Failure]) -> Failed:
        """Write failed attempts: PENDING with backoff, or FAILED. Locked rows are handed back."""
        by_id = {failure.outbox_id: failure for failure in failures}
        where = {
            "outbox_ids": array(by_id),
            "claim_ids": list({failure.batch.claim_id for failure in failures}),
        }

        def mark() -> Failed:
            locked = self._session.rows("lock_failures", where)
            outcomes = [
                (outbox_id, self._outcome(by_id[outbox_id], used, allowed), used)
                for outbox_id, used, allowed in locked
            ]
            self._session.run(
                "settle_failed",
                {
                    "outbox_ids": array(outbox_id for outbox_id, _, _ in outcomes),
                    "statuses": [str(status) for _, (status, _), _ in outcomes],
                    "charges": [1] * len(outcomes),
                    "delays": [delay for _, (_, delay), _ in outcomes],
                    "error_codes": [by_id[outbox_id].code for outbox_id, _, _ in outcomes],
                    "error_messages": [by_id[outbox_id].reason for outbox_id, _, _ in outcomes],
                },
            )
            done = {outbox_id for outbox_id, _, _ in outcomes}
            ended = sum(status is Status.FAILED for _, (status, _), _ in outcomes)
            return Failed(len(done) - ended, ended, [], [i for i in by_id if i not in done])

        result = self._session.in_transaction(mark)
        if not result.lost:
            return result
        still = {
            row[0]
            for row in self._session.rows(
                "find_claimed", {**where, "outbox_ids": array(result.lost)}
            )
        }
        return result._replace(
            held=[by_id[outbox_id] for outbox_id in result.lost if outbox_id in still],
            lost=[outbox_id for outbox_id in result.lost if outbox_id not in still],
        )

    def _outcome(self, failure: Failure, used: int, allowed: int) -> tuple[Status, float]:
        if failure.final or used + 1 >= allowed:
            return Status.FAILED, 0.0
        return Status.PENDING, self._backoff.delay(used + 1)

    def release(self, unsent: Sequence[Unsent]) -> None:
        """Give rows back that were certainly not sent."""
        self._session.run(
            "release_rows",
            {
                "outbox_ids": array(sorted(item.outbox_id for item in unsent)),
                "claim_ids": list({item.batch.claim_id for item in unsent}),
            },
        )

    def delete_claims(self, batches: Iterable[Batch]) -> None:
        """Delete the claims of finished batches."""
        self._session.run("delete_claims", {"claim_ids": [batch.claim_id for batch in batches]})


def array(numbers: Iterable[int]) -> str:
    """Write integers as an array literal: half the cost of adapting a Python list."""
    return "{" + ",".join(map(str, numbers)) + "}"
