"""The statements that write outcomes, each all or nothing."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from bridge.database.arrays import array
from bridge.lifecycle import Status
from bridge.routing import Router

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from contextlib import AbstractContextManager

    from bridge.database.session import Session
    from bridge.relay.batch import Ack, Batch, Unsent
    from bridge.retry import Backoff


class Failure(NamedTuple):
    """An attempt that failed.

    `final`: the message itself is refused, no later attempt can help. `delay`: nothing is wrong
    with it, it waits so many seconds, uncharged. `buried`: its record stands in the dead-letter
    topic already.
    """

    outbox_id: int
    code: str
    reason: str
    final: bool
    batch: Batch
    delay: float | None = None
    buried: bool = False


class FirstFailure(NamedTuple):
    """The first charged failure of a round, for the log."""

    outbox_id: int
    message_key: str
    traceparent: str | None
    code: str
    reason: str


class Failed(NamedTuple):
    """What became of a round of failures.

    `delayed`: went back uncharged. `held`: somebody else has the rows locked. `to_bury`: not
    written yet, since their record goes to a dead-letter topic before they end FAILED. `first`:
    the first that was written as retried or failed.
    """

    retried: int
    failed: int
    delayed: int
    held: list[Failure]
    lost: list[int]
    to_bury: list[Failure]
    first: FirstFailure | None = None


class Settlement:
    """Writes outcomes through one session.

    `router` tells where rows went: `sent_topic` records a topic that differs from the destination.
    It also tells whose failure holds its ordering key (`on_failure`). `guard` is held while
    failures of ordered rows are written: see `Holds`.
    """

    def __init__(self, session: Session, backoff: Backoff, router: Router | None = None) -> None:
        self._session = session
        self._backoff = backoff
        self.router = router or Router()
        self.guard: AbstractContextManager[Any] = nullcontext()

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
        """Write failed attempts: PENDING with backoff, or FAILED. Locked rows are handed back.

        An ordered row under `block` holds its key from then on, in the same transaction. Of the
        failures of one key only the first is charged and waits: those behind it go back uncharged,
        as followers, unless they can never be sent.
        """
        rows = {(failure.outbox_id, failure.batch): failure for failure in failures}
        attempts = list(rows.values())
        batches = list(dict.fromkeys(failure.batch for failure in attempts))

        def mark() -> Failed:
            locked = self._session.rows("lock_failures", _pairs(rows))
            found = [(rows[row[0], batches[row[1] - 1]], row) for row in locked]
            followers = self._followers(found)
            judged = [
                (failure, *self._outcome(failure, row[2], row[3]), row)
                for failure, row in found
                if failure not in followers
            ]
            to_bury = [one[0] for one in judged if self._is_to_bury(one[0], one[1])]
            outcomes = [one[:3] for one in judged if one[0] not in to_bury]
            self._session.run(
                "settle_failed",
                {
                    "outbox_ids": array(failure.outbox_id for failure, _, _ in outcomes),
                    "statuses": [str(status) for _, status, _ in outcomes],
                    "charges": [int(failure.delay is None) for failure, _, _ in outcomes],
                    "delays": [delay for _, _, delay in outcomes],
                    "error_codes": [failure.code for failure, _, _ in outcomes],
                    "error_messages": [failure.reason for failure, _, _ in outcomes],
                },
            )
            heads = [
                failure.outbox_id
                for failure, _, _, row in judged
                if row[5] and failure not in to_bury and self._holds(failure, row[4])
            ]
            if heads:
                self._session.run("place_holds", {"outbox_ids": array(heads)})
            if followers:
                given_back = _pairs([(f.outbox_id, f.batch) for f in followers])
                self._session.run("release_rows", given_back | {"uncounted": 0})
            seen = {(failure.outbox_id, failure.batch) for failure, _ in found}
            ended = sum(status is Status.FAILED for _, status, _ in outcomes)
            delayed = sum(failure.delay is not None for failure, _, _ in outcomes)
            left = [f for f in attempts if (f.outbox_id, f.batch) not in seen]
            retried = len(outcomes) - ended - delayed
            first = next(
                (
                    FirstFailure(failure.outbox_id, row[7], row[8], failure.code, failure.reason)
                    for failure, _, _, row in judged
                    if failure.delay is None and failure not in to_bury
                ),
                None,
            )
            return Failed(retried, ended, delayed + len(followers), left, [], to_bury, first)

        has_ordered = any(batch.lanes for batch in batches)
        with self.guard if has_ordered else nullcontext():
            result = self._session.in_transaction(mark)
        if not result.held:
            return result
        held = self._still_claimed((f.outbox_id, f.batch) for f in result.held)
        return result._replace(
            held=[f for f in result.held if (f.outbox_id, f.batch) in held],
            lost=[f.outbox_id for f in result.held if (f.outbox_id, f.batch) not in held],
        )

    def _followers(self, found: Iterable[tuple[Failure, Sequence[Any]]]) -> set[Failure]:
        """Return the failures behind another one, or behind a hold, of their own key.

        `found` is in id order, each with its row of `lock_failures.sql`.
        """
        heads: set[tuple[str, str]] = set()
        followers = set()
        for failure, (_, _, _, _, destination, key, is_held, *_) in found:
            if key is None or not self._holds(failure, destination):
                continue
            if not failure.final and (is_held or (destination, key) in heads):
                followers.add(failure)
            heads.add((destination, key))
        return followers

    def _still_claimed(self, rows: Iterable[tuple[int, Batch]]) -> set[tuple[int, Batch]]:
        """Return those rows that are still PROCESSING: somebody else has them locked."""
        pairs = list(rows)
        batches = list(dict.fromkeys(batch for _, batch in pairs))
        found = self._session.rows("find_claimed", _pairs(pairs))
        return {(outbox_id, batches[number - 1]) for outbox_id, number in found}

    def _holds(self, failure: Failure, destination: str) -> bool:
        """Tell whether a row holds its ordering key; one that waits for a leader always does."""
        return failure.delay is not None or self.router.blocks(destination)

    def _is_to_bury(self, failure: Failure, status: Status) -> bool:
        """Tell whether the record of a row that ends FAILED goes to a dead-letter topic first."""
        if status is not Status.FAILED or failure.buried:
            return False
        destination = failure.batch.where(failure.outbox_id)
        return self.router.route(destination).dead_letter is not None

    def _outcome(self, failure: Failure, used: int, allowed: int) -> tuple[Status, float]:
        if failure.delay is not None:
            return Status.PENDING, failure.delay
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
