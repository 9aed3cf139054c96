"""The demo's five acts, and the reckoning at their end."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.demo.plan import Plan
from bridge.demo.reckoning import Evidence, count_figures
from bridge.demo.relays import Kill, Killer
from bridge.demo.screen import Numbers
from bridge.demo.stage import build_stage, signals_end_in_order
from bridge.demo.verdict import Check, judge
from bridge.local.broker import describe_choice

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bridge.demo.figures import Figures
    from bridge.demo.screen import Screen
    from bridge.demo.stage import Stage
    from bridge.settings import Settings

_TICK_SECONDS = 0.02
_SAMPLE_SECONDS = 0.25
_KILL_PATIENCE_SECONDS = 30.0
_STALL_SECONDS = 15.0
_SECOND_STALL_SECONDS = 3.0
_EXTRA_MESSAGES = 40


@dataclass(frozen=True, slots=True)
class Result:
    """What was counted, which sums hold, and the folder if it was to be kept."""

    figures: Figures
    checks: list[Check]
    kept: Path | None


def run_demo(settings: Settings, *, messages: int, keep: bool, screen: Screen) -> Result:
    """Play the demo and reckon up. Raises OutboxError where a part fails, KeyboardInterrupt.

    Nothing that it started is left, in any case.
    """
    began = time.monotonic()
    with signals_end_in_order():
        local = settings.local
        broker = local.bootstrap_servers or describe_choice(local.kafka)
        screen.act(1, f"starting PostgreSQL and {broker}, the schema, a shop and a consumer")
        with build_stage(settings, keep=keep, progress=screen.note) as stage:
            play = _Play(stage, Plan.of(messages), screen)
            evidence = play.run()
            figures = count_figures(
                stage, evidence, messages_asked=messages, seconds=time.monotonic() - began
            )
            checks = judge(figures)
            for check in checks:
                screen.check(check.text, holds=check.holds)
            return Result(figures, checks, stage.folder if keep else None)


class _Play:
    """The acts, one method each; `_until` keeps everything going while one waits."""

    def __init__(self, stage: Stage, plan: Plan, screen: Screen) -> None:
        self._stage = stage
        self._plan = plan
        self._screen = screen
        self._numbers = Numbers(total=plan.backlog + plan.rush + plan.steady)
        self._acts = 0
        self._next_sample = 0.0
        self._stall_seconds = _STALL_SECONDS
        self._relays_up_ns = 0
        self._unclean: list[str] = []

    def run(self) -> Evidence:
        shop, consumer = self._stage.shop, self._stage.consumer
        self._until(lambda: bool(shop.facts.get("ready") and consumer.facts.get("ready")))
        self._fill_backlog()
        self._send_backlog()
        kill, kills, rescue_seconds = self._rush()
        self._steady()
        self._end()
        return Evidence(
            kill=kill,
            kills=kills,
            rescue_seconds=rescue_seconds,
            backlog_act="backlog",
            relays_up_ns=self._relays_up_ns,
            steady_act="steady",
            steady_rate=self._plan.steady_rate,
            unclean_relays=tuple(self._unclean),
        )

    def _fill_backlog(self) -> None:
        self._screen.act(2, "the shop takes orders: each with its messages in one transaction")
        self._screen.note("some are rolled back, some enqueued twice; no relay runs yet")
        self._write("backlog", self._plan.backlog)
        self._finish_writing()
        self._screen.note(f"{self._enqueued:,} messages wait in the outbox; nothing is lost")

    def _send_backlog(self) -> None:
        self._screen.act(3, "relay-1 and relay-2 start and send the backlog")
        for relay in self._stage.relays:
            relay.start()
        self._until(lambda: self._stage.observer.relays() > 0)
        self._relays_up_ns = time.time_ns()
        self._until(self._all_received)

    def _rush(self) -> tuple[Kill | None, int, float | None]:
        victim, other = self._stage.relays
        plan = self._plan
        self._screen.act(4, f"rush hour: imports among the orders, and {victim.name} is to die")
        self._write("rush", plan.rush, plan.rush_rate, plan.import_orders)
        killer = Killer(victim, self._stage.observer, wish=max(1, plan.import_orders // 4))
        deadline = time.monotonic() + _KILL_PATIENCE_SECONDS
        kill: Kill | None = None
        while kill is None and time.monotonic() < deadline:
            if self._written():
                self._write("rush", _EXTRA_MESSAGES, plan.rush_rate, plan.import_orders)
            kill = killer.strike(_TICK_SECONDS)
            self._tick()
        if kill is None:
            self._screen.note(f"{victim.name} never had rows in flight when it was frozen")
            self._finish_writing()
            return None, killer.kills, None
        self._screen.note(
            f"{victim.name} killed with SIGKILL while {len(kill.outbox_ids):,} rows were in "
            "flight; it starts again at once"
        )
        victim.start()
        rescued = self._until(lambda: not self._stage.observer.stranded(kill.outbox_ids))
        seconds = time.monotonic() - kill.at if rescued else None
        if seconds is not None:
            self._screen.note(
                f"its rows were taken back after {seconds:.1f} s and go out again, same keys; "
                f"{other.name} went on meanwhile"
            )
        self._finish_writing()
        self._until(self._all_received)
        return kill, killer.kills, seconds

    def _steady(self) -> None:
        plan = self._plan
        self._screen.act(
            5, f"an ordinary hour: {plan.steady_rate:.0f} messages/s, from commit to consumer"
        )
        self._write("steady", plan.steady, plan.steady_rate)
        self._finish_writing()

    def _end(self) -> None:
        """Wait until everything is SENT, have the notes written, and stop the relays in order."""
        stage = self._stage
        self._until(self._all_received)
        self._until(lambda: stage.observer.sent() >= self._enqueued)
        stage.shop.send(notes=str(stage.folder / "shop.json"))
        stage.consumer.send(notes=str(stage.folder / "consumer.json"))
        self._until(
            lambda: bool(stage.shop.facts.get("written") and stage.consumer.facts.get("written"))
        )
        self._unclean = [relay.name for relay in stage.relays if not relay.stop()]
        self._screen.note("both relays stopped when asked (SIGTERM); now the sums")

    def _write(self, act: str, messages: int, rate: float = 0.0, import_orders: int = 0) -> None:
        self._acts += 1
        self._stage.shop.send(act=act, messages=messages, rate=rate, import_orders=import_orders)

    def _finish_writing(self) -> None:
        self._until(self._written)

    def _written(self) -> bool:
        return bool(self._stage.shop.facts.get("finished", 0) >= self._acts)

    @property
    def _enqueued(self) -> int:
        return int(self._stage.shop.facts.get("enqueued", 0))

    def _all_received(self) -> bool:
        return bool(
            self._written() and self._stage.consumer.facts.get("distinct", 0) >= self._enqueued
        )

    def _until(self, true: Callable[[], bool]) -> bool:
        """Keep going until `true`; where nothing moves any more go on: the sums will tell why."""
        before: tuple[int, ...] = ()
        stalled = 0.0
        while True:
            self._tick()
            if true():
                return True
            numbers = self._numbers
            moved = (numbers.enqueued, numbers.sent, numbers.received)
            if moved != before:
                before = moved
                stalled = time.monotonic() + self._stall_seconds
            elif time.monotonic() > stalled:
                self._screen.note(f"nothing moved for {self._stall_seconds:.0f} s; going on")
                self._stall_seconds = _SECOND_STALL_SECONDS
                return False
            time.sleep(_TICK_SECONDS)

    def _tick(self) -> None:
        stage, numbers = self._stage, self._numbers
        for child in (stage.shop, stage.consumer):
            child.listen()
        for relay in stage.relays:
            relay.check()
            numbers.relays[relay.name] = relay.state
        if (now := time.monotonic()) >= self._next_sample:
            self._next_sample = now + _SAMPLE_SECONDS
            numbers.sent = stage.observer.sent()
        numbers.enqueued = self._enqueued
        numbers.received = stage.consumer.facts.get("distinct", 0)
        numbers.duplicates = stage.consumer.facts.get("duplicates", 0)
        self._screen.show(numbers)
