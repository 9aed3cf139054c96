"""The statements that write outcomes, each all or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from bridge.database.arrays import array
from bridge.lifecycle import Status
from bridge.routing import Router

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

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
        outbox_ids, partitions, offsets, batches = zip(*acks, strict=True) if acks else ((),) * 4
        routed = self.router.renamed()
        parameters = {
            **_fences(outbox_ids, batches),
            "partitions": array(partitions),
            # Where a retried batch was recognised as a duplicate, the broker tells no offset, and
            # the client says None.
            "offsets": array(-1 if offset is None or offset < 0 else offset for offset in offsets),
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
        rows = self._session.rows(
            "find_unsettled", _fences([ack[0] for ack in acks], [ack[3] for ack in acks])
        )
        return [row[0] for row in rows]

    def mark_failed(self, failures: Sequence[Failure]) -> Failed:
        """Write failed attempts: PENDING with backoff, or FAILED. Locked rows are handed back."""
        rows = {(failure.outbox_id, failure.batch): failure for failure in failures}
        attempts = list(rows.values())
        batches = list(dict.fromkeys(failure.batch for failure in attempts))

        def find(row: Sequence[int]) -> Failure:
            return rows[row[0], batches[row[1] - 1]]

        def mark() -> Failed:
            locked = self._session.rows("lock_failures", _pairs(rows))
            outcomes = [
                (failure, *self._outcome(failure, used, allowed))
                for failure, used, allowed in ((find(row), row[2], row[3]) for row in locked)
            ]
            self._session.run(
                "settle_failed",
                {
                    "outbox_ids": array(failure.outbox_id for failure, _, _ in outcomes),
                    "statuses": [str(status) for _, status, _ in outcomes],
                    "charges": [1] * len(outcomes),
                    "delays": [delay for _, _, delay in outcomes],
                    "error_codes": [failure.code for failure, _, _ in outcomes],
                    "error_messages": [failure.reason for failure, _, _ in outcomes],
                },
            )
            done = {(failure.outbox_id, failure.batch) for failure, _, _ in outcomes}
            ended = sum(status is Status.FAILED for _, status, _ in outcomes)
            left = [f for f in attempts if (f.outbox_id, f.batch) not in done]
            return Failed(len(done) - ended, ended, left, [])

        result = self._session.in_transaction(mark)
        if not result.held:
            return result
        held = self._still_claimed((f.outbox_id, f.batch) for f in result.held)
        return result._replace(
            held=[f for f in result.held if (f.outbox_id, f.batch) in held],
            lost=[f.outbox_id for f in result.held if (f.outbox_id, f.batch) not in held],
        )

    def _still_claimed(self, rows: Iterable[tuple[int, Batch]]) -> set[tuple[int, Batch]]:
        """Return those rows that are still PROCESSING: somebody else has them locked."""
        pairs = list(rows)
        batches = list(dict.fromkeys(batch for _, batch in pairs))
        found = self._session.rows("find_claimed", _pairs(pairs))
        return {(outbox_id, batches[number - 1]) for outbox_id, number in found}

    def _outcome(self, failure: Failure, used: int, allowed: int) -> tuple[Status, float]:
        if failure.final or used + 1 >= allowed:
            return Status.FAILED, 0.0
        return Status.PENDING, self._backoff.delay(used + 1)

    def release(self, unsent: Sequence[Unsent]) -> list[Unsent]:
        """Give rows back, uncharged; returns those that somebody has locked."""
        rows = [(item.outbox_id, item.batch) for item in unsent]
        released = 0
        for handed in (False, True):
            some = [(item.outbox_id, item.batch) for item in unsent if item.handed is handed]
            if some:
                uncounted = {"uncounted": 0 if handed else 1}
                released += self._session.run("release_rows", _pairs(some) | uncounted)
        if released == len(rows):
            return []
        held = self._still_claimed(rows)
        return [item for item in unsent if (item.outbox_id, item.batch) in held]

    def delete_claims(self, batches: Iterable[Batch]) -> None:
        """Delete the claims of finished batches."""
        self._session.run("delete_claims", {"claim_ids": [batch.claim_id for batch in batches]})


def _pairs(rows: Collection[tuple[int, Batch]]) -> dict[str, Any]:
    return _fences([outbox_id for outbox_id, _ in rows], [batch for _, batch in rows])


def _fences(outbox_ids: Sequence[int], batches: Sequence[Batch]) -> dict[str, Any]:
    """Write rows with the claim of each: the claims, and for each row its claim's place from 1."""
    numbers: dict[Batch, int] = {}
    claim_numbers = [numbers.setdefault(batch, len(numbers) + 1) for batch in batches]
    return {
        "outbox_ids": array(outbox_ids),
        "claim_numbers": array(claim_numbers),
        "claim_ids": [batch.claim_id for batch in numbers],
    }
