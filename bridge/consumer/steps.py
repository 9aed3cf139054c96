"""What happens to messages inside one transaction, apart from how it is run.

Generators that yield statements and calls and are sent rows and results: one logic for handlers
that are coroutines and for handlers in threads.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from psycopg.pq import TransactionStatus

from bridge.consumer.inbox import Inbox, Receipt, receipt_of, vanished
from bridge.consumer.outcomes import PROCESSED, Fate, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

    from bridge.consumer.handlers import Handler
    from bridge.consumer.received import Received

T = TypeVar("T")
Row = tuple[Any, ...]

_ATTEMPTS = 3


class Execute(NamedTuple):
    """One statement; its rows are sent back."""

    statement: bytes
    parameters: dict[str, Any]


class Call(NamedTuple):
    """Handler calls for these messages; one result each is sent back, None by a `many` handler."""

    handler: Handler
    payloads: list[Any]
    received: list[Received]


Steps = Generator[Execute | Call, Any, T]


class BrokenTransactionError(Exception):
    """The handler left its transaction in a state in which it cannot be committed."""


@dataclass(slots=True)
class Item:
    """One message on its way through a transaction."""

    received: Received
    handler: Handler
    payload: Any


def handle_one(inbox: Inbox, item: Item) -> Steps[Outcome]:
    """Enter the key and call the handler, or tell what is known of the key."""
    entry = inbox.entry_of(item.received)
    enter = inbox.statement("enter_inbox")
    for _ in range(_ATTEMPTS):
        if (yield Execute(enter, entry)):
            results = yield Call(item.handler, [item.payload], [item.received])
            result = None if results is None else results[0]
            if result is None:
                return PROCESSED
            kept = inbox.results([entry["message_key"]], [result])
            yield Execute(inbox.statement("keep_inbox_results"), kept)
            return Outcome(Fate.PROCESSED, result)
        receipt = yield from look(inbox, entry)
        if receipt is not None:
            return _absorbed(receipt)
    raise vanished(entry["message_key"])


def look(inbox: Inbox, entry: dict[str, Any]) -> Steps[Receipt | None]:
    """Tell what the inbox knows of a key; None where it knows nothing."""
    keys = {"consumer": entry["consumer"], "message_keys": [entry["message_key"]]}
    rows: list[Row] = yield Execute(inbox.statement("find_inbox"), keys)
    return receipt_of(rows[0], entry["content_hash"]) if rows else None


def look_first(inbox: Inbox, item: Item) -> Steps[Outcome | None]:
    """Tell the fate of a message whose work is done elsewhere; None where it has to be done."""
    receipt = yield from look(inbox, inbox.entry_of(item.received))
    return None if receipt is None else _absorbed(receipt)


def keep(inbox: Inbox, item: Item, result: Any) -> Steps[Outcome]:
    """Enter the key of work that was done elsewhere."""
    entry = inbox.entry_of(item.received)
    if (yield Execute(inbox.statement("enter_inbox"), entry)) and result is not None:
        kept = inbox.results([entry["message_key"]], [result])
        yield Execute(inbox.statement("keep_inbox_results"), kept)
    return Outcome(Fate.PROCESSED, result)


def handle_many(inbox: Inbox, items: Sequence[Item]) -> Steps[list[Outcome]]:
    """Enter the keys of all and call the handlers of those that are new, in order per key.

    Returns one outcome for each item.
    """
    entries = [inbox.entry_of(item.received) for item in items]
    firsts: dict[str, int] = {}
    for index, entry in enumerate(entries):
        firsts.setdefault(entry["message_key"], index)
    fresh, known = yield from _enter_all(inbox, entries, firsts)
    outcomes: list[Outcome] = []
    todo: list[Item] = []
    for index, entry in enumerate(entries):
        key = entry["message_key"]
        if firsts[key] == index and key in fresh:
            outcomes.append(PROCESSED)
            todo.append(items[index])
            continue
        receipt = known.get(key)
        if receipt is None:  # its first is in this very batch
            receipt = (b"", entries[firsts[key]]["content_hash"], None)
        outcomes.append(_absorbed(receipt_of(receipt, entry["content_hash"])))
    results: dict[str, Any] = {}
    for group in waves(todo):
        handler = group[0].handler
        payloads = [item.payload for item in group]
        returned = yield Call(handler, payloads, [item.received for item in group])
        if returned is not None:
            results.update(
                (item.received.message_key, result)
                for item, result in zip(group, returned, strict=True)
                if result is not None
            )
    if results:
        kept = inbox.results(list(results), list(results.values()))
        yield Execute(inbox.statement("keep_inbox_results"), kept)
    return outcomes


def _enter_all(
    inbox: Inbox, entries: list[dict[str, Any]], firsts: dict[str, int]
) -> Steps[tuple[set[str], dict[str, Row]]]:
    fresh: set[str] = set()
    known: dict[str, Row] = {}
    for _ in range(_ATTEMPTS):
        missing = [
            entries[index] for key, index in firsts.items() if key not in fresh and key not in known
        ]
        if not missing:
            return fresh, known
        rows = yield Execute(inbox.statement("enter_inbox_many"), inbox.entries_of(missing))
        fresh.update(row[0] for row in rows)
        absorbed = [key for key in firsts if key not in fresh and key not in known]
        if absorbed:
            keys = {"consumer": inbox.consumer, "message_keys": absorbed}
            rows = yield Execute(inbox.statement("find_inbox"), keys)
            known.update((row[0], row) for row in rows)
    raise vanished(next(key for key in firsts if key not in fresh and key not in known))


def waves(items: Sequence[Item]) -> list[list[Item]]:
    """Cut items into groups of one handler each, as large as the order per key allows."""
    groups: dict[tuple[int, int], list[Item]] = {}
    reached: dict[tuple[str, int, bytes], tuple[int, int]] = {}
    for item in items:
        received, handler = item.received, id(item.handler)
        wave = 0
        if received.key is not None:
            lane = (received.topic, received.partition, received.key)
            wave, last = reached.get(lane, (0, handler))
            if last != handler:
                wave += 1
            reached[lane] = (wave, handler)
        groups.setdefault((wave, handler), []).append(item)
    return [group for _, group in sorted(groups.items(), key=lambda one: one[0][0])]


def check_transaction(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Raise BrokenTransactionError unless the transaction can be committed as it stands.

    PostgreSQL answers COMMIT of a failed transaction with a rollback, and no error.
    """
    status = conn.info.transaction_status
    if status is TransactionStatus.INTRANS:
        return
    if status is TransactionStatus.INERROR:
        raise BrokenTransactionError(
            "the handler went on after a statement had failed; its transaction is lost. Put "
            "statements that may fail into `with conn.transaction():`"
        )
    raise BrokenTransactionError(
        "the handler ended its transaction itself; leave COMMIT and ROLLBACK to the consumer"
    )


def _absorbed(receipt: Receipt) -> Outcome:
    return Outcome(Fate.CONFLICT if receipt.differs else Fate.DUPLICATE, receipt.result)
