"""The shop's acts: the bug, the same with the outbox, everything that goes wrong, the reckoning."""

from __future__ import annotations

import time
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import TYPE_CHECKING

import psycopg

from bridge.demo.observer import Observer
from bridge.demo.relays import Kill, Killer
from bridge.demo.shop.customers import Answers, wishes
from bridge.demo.shop.order_service import NAIVE, OUTBOX
from bridge.demo.shop.progress import ShopProgress
from bridge.demo.shop.reckoning import Evidence, count_figures, find_trace
from bridge.demo.shop.stage import API_SECONDS, build_shop
from bridge.demo.shop.trace_tree import draw
from bridge.demo.shop.verdict import judge
from bridge.demo.stage import signals_end_in_order
from bridge.errors import OutboxError
from bridge.local.broker import describe_choice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from bridge.demo.screen import Screen
    from bridge.demo.shop.customers import Wish
    from bridge.demo.shop.figures import ShopFigures
    from bridge.demo.shop.members import Member
    from bridge.demo.shop.stage import ShopStage
    from bridge.demo.verdict import Check
    from bridge.settings import Settings

ACTS = 5
_FEW, _FEW_DECLINED = 9, 3
_UNANSWERED = f"{NAIVE}-2"
"""An order that can be had; its call is answered too late."""
_CALM, _BUSY = "calm", "busy"
"""Prefixes of order ids."""
_CALM_RATE = 20.0
_BUSY_RATE = 40.0
_PARTS = 5
_DECLINED_EACH = 10
_TICK_SECONDS = 0.02
_SAMPLE_SECONDS = 0.25
_READY_SECONDS = 90.0
_PATIENCE_SECONDS = 90.0
_STALL_SECONDS = 60.0
_KILL_SECONDS = 20.0
_LATE_SECONDS = 3 * API_SECONDS
_REPLAYED = 20


@dataclass(frozen=True, slots=True)
class Result:
    """What was counted, which sums hold, one order's trace, and the folder if it is kept."""

    figures: ShopFigures
    checks: list[Check]
    tree: list[str]
    kept: Path | None


def run_shop(settings: Settings, *, orders: int, keep: bool, screen: Screen) -> Result:
    """Play the scenario with so many orders in its fourth act.

    Raises OutboxError where a part fails, KeyboardInterrupt. Nothing that it started is left, in
    any case.
    """
    began = time.monotonic()
    with signals_end_in_order():
        local = settings.local
        broker = local.bootstrap_servers or describe_choice(local.kafka)
        screen.act(1, f"starting PostgreSQL and {broker}, four services and two relays")
        with build_shop(settings, keep=keep, progress=screen.note) as stage:
            play = _Play(stage, orders, screen)
            evidence = play.run()
            figures = count_figures(stage, evidence, seconds=time.monotonic() - began)
            checks = judge(figures)
            for check in checks:
                screen.check(check.text, holds=check.holds)
            return Result(figures, checks, draw(find_trace(stage)), stage.folder if keep else None)


class _Play:
    """The acts, one method each; `_until` keeps everybody going while one waits."""

    def __init__(self, stage: ShopStage, orders: int, screen: Screen) -> None:
        self._stage = stage
        self._orders = orders
        self._screen = screen
        self._progress = ShopProgress(total=_FEW + orders)
        self._next_sample = 0.0
        self._naive = Answers()
        self._replayed = 0
        self._late = 0

    def run(self) -> Evidence:
        self._stage.books.meanwhile = self._keep
        self._stage.company.start()
        self._until(lambda: self._stage.company.is_ready, _READY_SECONDS, "everybody is ready")
        self._screen.note("order service, payment service, notification service: each a process")
        self._screen.note("with a database of its own; the payment API is somebody else's")
        if not self._stage.parts.is_real:
            self._screen.note("the mock broker knows no static members: a killed consumer's share")
            self._screen.note(
                "waits for its session's time-out (6 s); a real Kafka gives it back at once"
            )
        self._naively()
        self._with_the_outbox()
        self._everything_goes_wrong()
        unclean = self._end()
        return Evidence(
            naive=self._naive,
            outbox=self._stage.customers.answers,
            replayed=self._replayed,
            late=self._late,
            unclean=tuple(unclean),
        )

    def _naively(self) -> None:
        screen, stage = self._screen, self._stage
        screen.act(2, "as it was: the order service calls the payment API inside its transaction")
        screen.note(
            f"{_FEW + _FEW_DECLINED} customers; for {_FEW_DECLINED} the stock is found empty after "
            "the call, and one call is answered too late"
        )
        stage.books.set_fault(NAIVE, seconds=_LATE_SECONDS, only_order=_UNANSWERED)
        self._place(wishes(NAIVE, _FEW, _FEW_DECLINED), path="/naive/orders", rate=_CALM_RATE)
        self._finish_placing()
        self._naive = stage.customers.answers
        stage.customers.answers = Answers()
        charges = [order for order, account in stage.books.charges() if account == NAIVE]
        accepted = set(self._naive.accepted)
        lost = sorted(set(charges) - accepted)
        screen.note(f"rolled back, and charged all the same: {', '.join(lost) or 'none'}")
        screen.note("a rollback takes back the order, but not the call")
        for order in sorted({one for one in charges if charges.count(one) > 1}):
            screen.note(f"order {order}: no answer, so it was asked again, and charged twice")
        screen.note("a call without an answer may have charged or not: nobody can tell")

    def _with_the_outbox(self) -> None:
        screen, stage = self._screen, self._stage
        screen.act(3, "the same with the outbox: order and message in one transaction, no call")
        screen.note(
            "the payment service gets the message from Kafka and calls the API with its key"
        )
        self._place(wishes(_CALM, _FEW, _FEW_DECLINED), path="/orders", rate=_CALM_RATE)
        self._finish_placing()
        self._until(self._all_told, _PATIENCE_SECONDS, "every customer is told")
        screen.note(
            f"{len(stage.customers.answers.accepted)} orders, as many charges, as many "
            "notifications; what was rolled back left no message behind"
        )

    def _everything_goes_wrong(self) -> None:
        self._screen.act(4, f"a busy hour of {self._orders} orders, and everything goes wrong")
        wanted = wishes(_BUSY, self._orders, max(1, self._orders // _DECLINED_EACH))
        size = -(-len(wanted) // _PARTS)
        parts = [wanted[start : start + size] for start in range(0, len(wanted), size)]
        faults = [
            self._kill_the_relay,
            self._kill_the_payment_service,
            self._answer_late,
            self._kill_the_notification_service,
            self._send_again,
        ]
        for fault, part in zip(faults, parts, strict=True):
            fault(part)
        self._until(self._all_told, _PATIENCE_SECONDS, "every customer is told")

    def _kill_the_relay(self, part: Sequence[Wish]) -> None:
        relay = self._stage.company["relay-shop"]
        self._place(part, path="/orders", rate=_BUSY_RATE)
        rows = self._kill_in_flight(relay)
        relay.start()
        self._screen.note(
            f"relay-shop killed (SIGKILL) while it had handed {_rows(rows)} to Kafka and not noted "
            "Kafka's answer"
            if rows
            else "relay-shop killed (SIGKILL)"
        )
        self._screen.note("started again it takes them back and sends them again: same keys")
        self._finish_placing()

    def _kill_in_flight(self, relay: Member) -> int:
        """Kill the relay when it has rows in flight; return how many, 0 where nobody knows."""
        until = time.monotonic() + _KILL_SECONDS
        kill: Kill | None = None
        try:
            with Observer(self._stage.shop_url) as observer:
                killer = Killer(relay, observer, wish=1)
                while kill is None and time.monotonic() < until:
                    self._tick()
                    kill = killer.strike(_TICK_SECONDS)
        except (psycopg.OperationalError, OutboxError):
            # Somebody else was faster, with the relay or with the database.
            kill = None
        if kill is None and relay.state == "up":
            relay.kill()
        return len(kill.outbox_ids) if kill else 0

    def _kill_the_payment_service(self, part: Sequence[Wish]) -> None:
        stage, screen = self._stage, self._screen
        order = self._await_late_answer(part)
        victim = stage.company["payment-service"]
        victim.kill()
        victim.start()
        screen.note(
            f"order {order} was charged, and before the answer came the payment service was killed"
        )
        self._finish_placing()
        self._await_payment(order)
        screen.note("started again it got the record again, and the API its key: charged once")

    def _answer_late(self, part: Sequence[Wish]) -> None:
        order = self._await_late_answer(part)
        self._screen.note(f"order {order} was charged, and the payment API answers too late")
        self._finish_placing()
        self._await_payment(order)
        self._screen.note("asked again with the same key it gave its stored answer: charged once")

    def _kill_the_notification_service(self, part: Sequence[Wish]) -> None:
        victim = self._stage.company["notification-service"]
        self._place(part, path="/orders", rate=_BUSY_RATE)
        before = self._progress.notifications
        self._until(
            lambda: self._progress.notifications > before, _PATIENCE_SECONDS, "somebody is told"
        )
        victim.kill()
        victim.start()
        self._screen.note(
            "notification-service killed (SIGKILL) and started again: its inbox knows whom it told"
        )
        self._finish_placing()

    def _send_again(self, part: Sequence[Wish]) -> None:
        self._place(part, path="/orders", rate=_BUSY_RATE)
        pattern = f"order-{_BUSY}-*"
        self._until(lambda: self._sent_orders(pattern) >= _REPLAYED, _PATIENCE_SECONDS, "SENT")
        count = min(_REPLAYED, self._sent_orders(pattern))
        self._replayed = self._stage.books.replay(count, key_pattern=pattern)
        self._screen.note(
            f"an operator has {self._replayed} messages sent again (`outbox-bridge replay`): the "
            "payment service knows their keys"
        )
        self._finish_placing()

    def _end(self) -> list[str]:
        """Wait until everything has come to rest, and have everybody end in good order."""
        self._until(self._at_rest, _PATIENCE_SECONDS, "every message is SENT")
        self._screen.act(5, "everybody is asked to end (SIGTERM); then the sums")
        return self._stage.company.stop()

    def _await_late_answer(self, part: Sequence[Wish]) -> str:
        """Have the API charge and not answer in time; return the order it happened to."""
        books = self._stage.books
        books.set_fault(OUTBOX, seconds=_LATE_SECONDS)
        self._place(part, path="/orders", rate=_BUSY_RATE)
        self._until(
            lambda: books.fault(OUTBOX)[0] == 0, _PATIENCE_SECONDS, "the payment API has charged"
        )
        self._late += 1
        return books.fault(OUTBOX)[1] or "?"

    def _await_payment(self, order: str) -> None:
        self._until(
            lambda: order in self._stage.books.payments(),
            _PATIENCE_SECONDS,
            f"order {order} is paid",
        )

    def _place(self, part: Sequence[Wish], *, path: str, rate: float) -> None:
        self._stage.customers.place(part, path=path, rate=rate)

    def _finish_placing(self) -> None:
        self._until(lambda: self._stage.customers.idle, _PATIENCE_SECONDS, "orders are answered")

    def _sent_orders(self, key_pattern: str) -> int:
        return sum(
            message.is_sent and fnmatch(message.message_key, key_pattern)
            for message in self._stage.books.shop_messages()
        )

    def _all_told(self) -> bool:
        accepted = set(self._stage.customers.answers.accepted)
        return accepted <= set(self._stage.books.notifications())

    def _at_rest(self) -> bool:
        books = self._stage.books
        messages = [*books.shop_messages(), *books.payment_messages()]
        return all(message.is_sent for message in messages)

    def _until(self, true: Callable[[], bool], seconds: float, what: str) -> None:
        """Keep everybody going until `true`; after so many seconds go on: the sums will tell."""
        until = time.monotonic() + seconds
        while True:
            self._tick()
            if true():
                return
            if time.monotonic() > until:
                self._screen.note(f"after {seconds:.0f} s still not: {what}; going on")
                return
            time.sleep(_TICK_SECONDS)

    def _keep(self) -> None:
        for name in self._stage.company.keep():
            self._screen.note(f"{name} had ended and was started again")

    def _tick(self) -> None:
        stage, progress = self._stage, self._progress
        self._keep()
        if (now := time.monotonic()) >= self._next_sample:
            self._next_sample = now + _SAMPLE_SECONDS
            books = stage.books
            progress.orders = sum(way == OUTBOX for _, way in books.orders())
            progress.charges = sum(account == OUTBOX for _, account in books.charges())
            progress.notifications = len(books.notifications())
        progress.members = {name: one.state for name, one in stage.company.members.items()}
        self._screen.show(progress)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"
