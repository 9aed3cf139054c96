"""The customers: threads that place orders and ask again until they have an answer."""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import httpx

from bridge.errors import OutboxError

if TYPE_CHECKING:
    from collections.abc import Sequence

ITEMS = ("tea", "coffee", "cocoa", "mate")
SOLD_OUT = "truffle"
"""Nothing of it is left, so an order for it fails after everything else was done."""
_NAMES = ("Ada", "Bo", "Cem", "Dora", "Emil", "Fay", "Gus", "Hana", "Ivo", "June")
_ASK_SECONDS = 10.0
_AGAIN_SECONDS = 0.1
_PATIENCE_SECONDS = 90.0
_OK, _CREATED, _CONFLICT, _UNPROCESSABLE = 200, 201, 409, 422


@dataclass(frozen=True, slots=True)
class Wish:
    """One order that a customer wants placed."""

    order_id: str
    customer: str
    item: str
    quantity: int
    amount_cents: int


@dataclass
class Answers:
    """What the customers were told, by order."""

    accepted: list[str] = field(default_factory=list)
    declined: list[str] = field(default_factory=list)
    asked_again: int = 0


def wishes(prefix: str, count: int, declined: int) -> list[Wish]:
    """Return `count` orders that can be had and `declined` that cannot, spread among them."""
    every = count // declined if declined else count + 1
    numbers = itertools.count(1)
    found = []
    for index in range(count):
        found.append(_wish(prefix, next(numbers), ITEMS[index % len(ITEMS)]))
        if declined and index % every == every - 1 and len(found) - index - 1 < declined:
            found.append(_wish(prefix, next(numbers), SOLD_OUT))
    return found


def _wish(prefix: str, number: int, item: str) -> Wish:
    quantity = number % 3 + 1
    return Wish(
        order_id=f"{prefix}-{number}",
        customer=_NAMES[number % len(_NAMES)],
        item=item,
        quantity=quantity,
        amount_cents=quantity * 490,
    )


class Customers:
    """Place wishes at a rate, each by the next free customer.

    A request that is not answered, or answered with 5xx, is sent again: the same order, by its id.
    """

    def __init__(self, url: str, *, customers: int = 4) -> None:
        self._url = url
        self._customers = customers
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._error: BaseException | None = None
        self._gone = threading.Event()
        self.answers = Answers()

    def place(self, wanted: Sequence[Wish], *, path: str, rate: float) -> None:
        """Begin to place so many orders a second, and return."""
        due = time.monotonic()
        queue = iter([(due + index / rate, wish) for index, wish in enumerate(wanted)])
        self._threads = [
            threading.Thread(target=self._work, args=(queue, path), daemon=True)
            for _ in range(self._customers)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def idle(self) -> bool:
        """Whether everybody has an answer; raises what a customer failed with."""
        if self._error is not None:
            raise self._error
        return not any(thread.is_alive() for thread in self._threads)

    def leave(self) -> None:
        """Ask nothing more."""
        self._gone.set()
        for thread in self._threads:
            thread.join(_ASK_SECONDS)

    def _work(self, queue: object, path: str) -> None:
        try:
            with httpx.Client(base_url=self._url, timeout=_ASK_SECONDS) as client:
                while not self._gone.is_set() and (task := self._next(queue)):
                    due, wish = task
                    self._gone.wait(max(0.0, due - time.monotonic()))
                    self._ask(client, path, wish)
        except BaseException as error:  # noqa: BLE001 - raised again by `idle`, in the main thread
            self._error = error

    def _next(self, queue: object) -> tuple[float, Wish] | None:
        with self._lock:
            return next(queue, None)  # type: ignore[call-overload,no-any-return]

    def _ask(self, client: httpx.Client, path: str, wish: Wish) -> None:
        body = {name: getattr(wish, name) for name in Wish.__slots__}
        until = time.monotonic() + _PATIENCE_SECONDS
        while not self._gone.is_set():
            try:
                answer: httpx.Response | None = client.post(path, json=body)
            except httpx.HTTPError:
                answer = None
            code = answer.status_code if answer is not None else None
            if code in (_OK, _CREATED):
                self._note(self.answers.accepted, wish)
                return
            if code == _CONFLICT:
                self._note(self.answers.declined, wish)
                return
            if code == _UNPROCESSABLE or time.monotonic() > until:
                told = answer.text if answer is not None else "no answer at all"
                raise OutboxError(f"order {wish.order_id} could not be placed: {code} {told}")
            with self._lock:
                self.answers.asked_again += 1
            self._gone.wait(_AGAIN_SECONDS)

    def _note(self, answers: list[str], wish: Wish) -> None:
        with self._lock:
            answers.append(wish.order_id)
