"""Counts what happened, each number from its own source, once everything has come to rest."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.demo.shop.events import OrderPlaced
from bridge.demo.shop.figures import ShopFigures, way_of
from bridge.demo.shop.order_service import NAIVE, OUTBOX
from bridge.demo.shop.topic_reader import message_keys
from bridge.demo.shop.trace_tree import duration_ns, grow, names
from bridge.demo.shop.verdict import is_complete

if TYPE_CHECKING:
    from bridge.demo.shop.customers import Answers
    from bridge.demo.shop.stage import ShopStage
    from bridge.demo.shop.trace_tree import Branch

_CANDIDATES = 5


@dataclass(frozen=True, slots=True)
class Evidence:
    """What only the one who played knows; the answers are those of each way's customers."""

    naive: Answers
    outbox: Answers
    replayed: int
    late: int
    unclean: tuple[str, ...]


def count_figures(stage: ShopStage, evidence: Evidence, *, seconds: float) -> ShopFigures:
    """Read everybody's books and the topics, and put them side by side."""
    books = stage.books
    orders, charges = books.orders(), books.charges()
    notifications, payments = books.notifications(), books.payments()
    shop_messages, payment_messages = books.shop_messages(), books.payment_messages()
    declined = set(evidence.outbox.declined)
    accepted = [order for order, way in orders if way == OUTBOX]
    charged = [order for order, account in charges if account == OUTBOX]
    enqueued = [*shop_messages, *payment_messages]
    records = [
        key
        for topic in (stage.orders, stage.payments)
        for key in message_keys(stage.parts.bootstrap_servers, topic)
    ]
    return ShopFigures(
        broker=stage.parts.broker,
        is_real_kafka=stage.parts.is_real,
        database=stage.parts.database,
        naive=way_of(
            [order for order, way in orders if way == NAIVE],
            [order for order, account in charges if account == NAIVE],
        ),
        outbox=way_of(accepted, charged, len(notifications)),
        accepted=len(evidence.outbox.accepted),
        declined=len(declined),
        rolled_back_left=len(declined & {order for order, _ in orders})
        + len(declined & set(charged))
        + len({_placed_key(order) for order in declined} & {m.message_key for m in enqueued}),
        enqueued=len(enqueued),
        sent=sum(message.is_sent for message in enqueued),
        records=len(records),
        messages=len(set(records)),
        lost=len({message.message_key for message in enqueued} - set(records)),
        replayed=evidence.replayed,
        notified_twice=_repeated(notifications),
        paid_twice=_repeated(payments),
        stored_answers=books.replayed_answers(),
        late_answers=evidence.late,
        asked_again=evidence.outbox.asked_again,
        kills=stage.company.kills,
        unclean=evidence.unclean,
        trace=tuple(names(find_trace(stage))),
        seconds=seconds,
    )


def find_trace(stage: ShopStage) -> list[Branch]:
    """Return the trace of an ordinary early order that can be followed all the way.

    Of the first complete ones it is that of median duration. A process that was killed took the
    spans with it that it had not reported yet. Empty where there is no complete trace.
    """
    spans = stage.collector.spans()
    found: list[list[Branch]] = []
    for message in stage.books.shop_messages():
        roots = grow(spans, message.trace_id) if message.trace_id else []
        if is_complete(names(roots)):
            found.append(roots)
        if len(found) == _CANDIDATES:
            break
    found.sort(key=duration_ns)
    return found[len(found) // 2] if found else []


def _placed_key(order_id: str) -> str:
    return OrderPlaced.model_construct(order_id=order_id).message_key


def _repeated(orders: list[str]) -> int:
    return sum(count > 1 for count in Counter(orders).values())
