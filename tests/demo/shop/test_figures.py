"""What the shop's numbers say is told from the lists of orders and charges alone."""

from __future__ import annotations

import dataclasses

import pytest

from bridge.demo.shop.customers import SOLD_OUT, wishes
from bridge.demo.shop.figures import ShopFigures, way_of
from bridge.demo.shop.report import comparison
from bridge.demo.shop.verdict import is_complete, judge
from bridge.demo.verdict import failed

_TRACE = (
    *("POST /orders", "create orders", "send orders", "process orders"),
    *("create payments", "send payments", "process payments"),
)
GOOD = ShopFigures(
    broker="Kafka",
    is_real_kafka=True,
    database="PostgreSQL",
    naive=way_of(["a"], ["a", "b", "c", "c"]),
    outbox=way_of(["d", "e"], ["d", "e"], 2),
    accepted=2,
    declined=1,
    rolled_back_left=0,
    enqueued=4,
    sent=4,
    records=6,
    messages=4,
    lost=0,
    replayed=2,
    notified_twice=0,
    paid_twice=0,
    stored_answers=2,
    late_answers=2,
    asked_again=0,
    kills=3,
    unclean=(),
    trace=_TRACE,
    seconds=1.0,
)


def test_charges_are_compared_with_orders_one_by_one() -> None:
    way = way_of(["a", "b", "c"], ["a", "a", "b", "x", "x"])
    assert (way.orders, way.charges) == (3, 5)
    assert way.charged_without_order == 2
    assert way.charged_twice == 2
    assert way.not_charged == 1


def test_the_good_figures_hold() -> None:
    assert failed(judge(GOOD)) == []
    assert comparison(GOOD)[0] == ("orders", 1, 2)
    assert comparison(GOOD)[3:] == [
        ("charged without order", 3, 0),
        ("charged twice", 1, 0),
    ]


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"naive": way_of(["a"], ["a"])}, {"bug"}),
        ({"outbox": way_of(["d", "e"], ["d", "e", "f"], 2)}, {"charged", "charged_without_order"}),
        ({"outbox": way_of(["d", "e"], ["d", "e", "e"], 2)}, {"charged", "charged_twice"}),
        ({"outbox": way_of(["d", "e"], ["d"], 2)}, {"charged"}),
        ({"outbox": way_of(["d", "e"], ["d", "e"], 1)}, {"notified"}),
        # As many charges as orders, and yet both wrongs.
        (
            {"outbox": way_of(["d", "e"], ["d", "x"], 2)},
            {"charged", "charged_without_order"},
        ),
        ({"accepted": 3}, {"orders"}),
        ({"rolled_back_left": 1}, {"rolled_back"}),
        ({"sent": 3}, {"sent"}),
        ({"lost": 1}, {"lost"}),
        ({"notified_twice": 1}, {"once"}),
        ({"paid_twice": 1}, {"once"}),
        ({"records": 4}, {"duplicates"}),
        ({"stored_answers": 1}, {"late"}),
        ({"late_answers": 0}, {"late"}),
        ({"kills": 2}, {"kills"}),
        ({"trace": _TRACE[:-1]}, {"trace"}),
        ({"unclean": ("relay-shop",)}, {"ends"}),
    ],
)
def test_each_wrong_number_fails_and_is_named(changed: dict[str, object], named: set[str]) -> None:
    figures = dataclasses.replace(GOOD, **changed)  # type: ignore[arg-type]  # one field each
    assert {check.name for check in failed(judge(figures))} == named


def test_a_trace_is_complete_with_both_messages_on_their_whole_way() -> None:
    assert is_complete(_TRACE)
    assert not is_complete(())
    for missing in _TRACE[1:]:
        assert not is_complete([name for name in _TRACE if name != missing])


@pytest.mark.parametrize(("count", "declined"), [(9, 3), (200, 20), (80, 8), (20, 2), (7, 0)])
def test_customers_wish_exactly_what_was_asked_for(count: int, declined: int) -> None:
    found = wishes("x", count, declined)
    assert len({wish.order_id for wish in found}) == len(found) == count + declined
    assert sum(wish.item == SOLD_OUT for wish in found) == declined
