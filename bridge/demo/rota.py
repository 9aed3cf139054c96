"""What the shop's workers do next, and when (thread-safe, no I/O)."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass
from enum import StrEnum

from bridge.demo.orders import EVENTS_OF_STEP

_OPEN_ORDERS = 40
_DECLINED_EACH = 20
_REPEATED_EACH = 15
_NEXT_STEP = {"created": "paid", "paid": "shipped"}


class Work(StrEnum):
    """Kinds of transactions."""

    PLACE = "place"
    PLACE_TWICE = "place twice"
    PLACE_AGAIN = "place again"
    DECLINE = "decline"
    PAY = "pay"
    SHIP = "ship"
    TAKE_OVER = "take over"


@dataclass(frozen=True, slots=True)
class Task:
    """One transaction to run, not before `due` (the monotonic clock)."""

    work: Work
    order_ids: tuple[int, ...]
    due: float


class Rota:
    """Deals out transactions until the act's messages are spent.

    Several orders are open at a time and advance in turns, each by whichever worker is free. At
    fixed intervals an order is declined (rolled back), and one is placed twice: in the same
    transaction or in a later one.
    """

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a repeatable mixture, nothing secret
        self._lock = threading.Lock()
        self._open: list[tuple[int, str]] = []
        self._waiting: list[Work] = []
        self._to_repeat: list[int] = []
        self._last_order = 0
        self._placed = 0
        self._left = 0
        self._rate = 0.0
        self._due = 0.0
        self._import_orders = 0
        self._next_import = 0.0

    def begin(self, messages: int, rate: float, import_orders: int = 0) -> None:
        """Start an act of so many messages at `rate` a second (0: at once), with imports or not."""
        with self._lock:
            self._left = messages
            self._rate = rate
            self._due = self._next_import = time.monotonic()
            self._import_orders = import_orders

    def take(self) -> Task | None:
        """Return the next transaction; None once the act's messages are spent."""
        with self._lock:
            if self._left <= 0:
                return None
            work, orders, messages = self._choose()
            self._left -= messages
            due = self._due
            if self._rate:
                self._due += messages / self._rate
            return Task(work, orders, due)

    def committed(self, task: Task) -> None:
        """Take a placed or advanced order back in, for its next step."""
        status = {Work.PAY: "paid", Work.SHIP: "shipped"}.get(task.work, "created")
        if task.work in (Work.DECLINE, Work.PLACE_AGAIN) or status not in _NEXT_STEP:
            return
        with self._lock:
            self._open.extend((order_id, status) for order_id in task.order_ids)
            if task.work is Work.PLACE and len(self._to_repeat) < _OPEN_ORDERS:
                self._to_repeat.append(task.order_ids[0])

    def _choose(self) -> tuple[Work, tuple[int, ...], int]:
        if self._waiting:
            return self._extra(self._waiting.pop())
        if self._import_orders and self._due >= self._next_import:
            count = min(self._import_orders, self._left)
            self._next_import = self._due + 2 * count / self._rate if self._rate else self._due
            return Work.TAKE_OVER, tuple(self._new_order() for _ in range(count)), count
        if len(self._open) >= _OPEN_ORDERS and (step := self._advance()):
            return step
        return self._place()

    def _advance(self) -> tuple[Work, tuple[int, ...], int] | None:
        index = self._random.randrange(len(self._open))
        order_id, status = self._open[index]
        step = _NEXT_STEP[status]
        if EVENTS_OF_STEP[step] > self._left:
            return None
        self._open[index] = self._open[-1]
        self._open.pop()
        return (Work.PAY if step == "paid" else Work.SHIP), (order_id,), EVENTS_OF_STEP[step]

    def _place(self) -> tuple[Work, tuple[int, ...], int]:
        self._placed += 1
        if self._placed % _DECLINED_EACH == 1:
            self._waiting.append(Work.DECLINE)
        twice = self._placed % (2 * _REPEATED_EACH) == 1
        if self._placed % (2 * _REPEATED_EACH) == _REPEATED_EACH:
            self._waiting.append(Work.PLACE_AGAIN)
        work = Work.PLACE_TWICE if twice else Work.PLACE
        return work, (self._new_order(),), EVENTS_OF_STEP["created"]

    def _extra(self, work: Work) -> tuple[Work, tuple[int, ...], int]:
        if work is Work.PLACE_AGAIN and self._to_repeat:
            return work, (self._to_repeat.pop(0),), 0
        return Work.DECLINE, (self._new_order(),), 0

    def _new_order(self) -> int:
        self._last_order += 1
        return self._last_order
