"""The shop writes exactly the messages that were asked for, each order's steps in turn."""

from __future__ import annotations

from collections import Counter

import pytest

from bridge.demo.orders import EVENTS_OF_STEP
from bridge.demo.plan import Plan
from bridge.demo.rota import Rota, Task, Work

_MESSAGES = {
    Work.PLACE: EVENTS_OF_STEP["created"],
    Work.PLACE_TWICE: EVENTS_OF_STEP["created"],
    Work.PLACE_AGAIN: 0,
    Work.DECLINE: 0,
    Work.PAY: EVENTS_OF_STEP["paid"],
    Work.SHIP: EVENTS_OF_STEP["shipped"],
}


def play(rota: Rota) -> list[Task]:
    tasks = []
    while task := rota.take():
        rota.committed(task)
        tasks.append(task)
    return tasks


def messages(task: Task) -> int:
    if task.work is Work.TAKE_OVER:
        return len(task.order_ids)
    return _MESSAGES[task.work]


@pytest.mark.parametrize("asked", [100, 101, 102, 999, 20_000, 1_000_000])
def test_the_acts_share_out_exactly_what_was_asked_for(asked: int) -> None:
    plan = Plan.of(asked)
    assert plan.backlog + plan.rush + plan.steady == asked
    assert min(plan.backlog, plan.rush, plan.steady) > 0
    assert plan.steady / plan.steady_rate <= 10


@pytest.mark.parametrize("asked", [1, 2, 3, 50, 1000])
def test_an_act_writes_exactly_its_messages(asked: int) -> None:
    rota = Rota()
    for act in range(3):
        rota.begin(asked, rate=0, import_orders=7 * act)
        assert sum(messages(task) for task in play(rota)) == asked


def test_every_act_has_rollbacks_and_repeats_even_when_it_is_short() -> None:
    rota = Rota()
    rota.begin(100, rate=0)
    kinds = Counter(task.work for task in play(rota))
    assert kinds[Work.DECLINE]
    assert kinds[Work.PLACE_TWICE]
    assert kinds[Work.PLACE_AGAIN]


def test_an_order_is_placed_paid_and_shipped_in_this_order() -> None:
    rota = Rota()
    rota.begin(2000, rate=0, import_orders=20)
    steps: dict[int, list[Work]] = {}
    for task in play(rota):
        for order_id in task.order_ids:
            steps.setdefault(order_id, []).append(task.work)
    for works in steps.values():
        first, *rest = (work for work in works if work is not Work.PLACE_AGAIN)
        if first is Work.DECLINE:
            assert rest == []
        else:
            assert first in (Work.PLACE, Work.PLACE_TWICE, Work.TAKE_OVER)
            assert rest == [Work.PAY, Work.SHIP][: len(rest)]


def test_a_paced_act_is_an_open_loop() -> None:
    rota = Rota()
    rota.begin(100, rate=50)
    due = [task.due for task in play(rota)]
    assert due == sorted(due)
    # Whoever runs the tasks, and however late: the last message is due after its share of time.
    assert due[-1] - due[0] == pytest.approx(100 / 50, abs=0.1)
