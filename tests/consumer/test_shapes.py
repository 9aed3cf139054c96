"""Payloads in the shape that annotations ask for, and signatures of handlers."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Literal
from uuid import UUID

import pytest

from bridge.consumer import Consumer
from bridge.consumer.handlers import is_json
from bridge.consumer.shapes import ShapeError, admits_none, converter
from bridge.errors import ConfigurationError


class Colour(Enum):
    RED = "red"


@dataclass
class Line:
    sku: str
    quantity: int = 1


@dataclass
class Order:
    order_id: UUID
    at: datetime
    total: Decimal
    lines: list[Line]
    colour: Colour = Colour.RED
    kind: Literal["new", "old"] = "new"
    tags: dict[str, int] = field(default_factory=dict)
    note: str | None = None
    parent: Order | None = None


GIVEN: dict[str, Any] = {
    "order_id": "00000000-0000-0000-0000-000000000007",
    "at": "2026-01-02T03:04:05+00:00",
    "total": 19.9,
    "lines": [{"sku": "a"}, {"sku": "b", "quantity": 2, "new_field": 1}],
}


def test_nested_dataclasses_are_built() -> None:
    wanted = Order(
        UUID(int=7),
        datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        Decimal("19.9"),
        [Line("a"), Line("b", 2)],
    )
    assert converter(Order)(GIVEN, "payload") == wanted
    child = converter(Order)({**GIVEN, "parent": GIVEN, "colour": "red", "tags": {"x": 1}}, "p")
    assert child.parent == wanted
    assert (child.colour, child.tags) == (Colour.RED, {"x": 1})


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"lines": [{"sku": "a"}, {}]}, r"payload\.lines\[1\]\.sku is missing"),
        ({"lines": [{"sku": 5}]}, r"payload\.lines\[0\]\.sku is int, not str"),
        ({"lines": [{"sku": "a", "quantity": True}]}, "quantity is bool, not int"),
        ({"lines": {}}, r"payload\.lines is dict, not list"),
        ({"order_id": "seven"}, "order_id is str, not UUID"),
        ({"at": "yesterday"}, "at is str, not datetime"),
        ({"total": "much"}, "total is str, not Decimal"),
        ({"total": None}, "total is NoneType, not Decimal"),
        ({"colour": "blue"}, "colour is str, not Colour"),
        ({"kind": "odd"}, "kind is str, not 'new' or 'old'"),
        ({"tags": {"x": "y"}}, r"tags\.x is str, not int"),
        ({"note": 5}, "note is int, not str"),
    ],
)
def test_what_does_not_fit_is_named_by_its_path(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ShapeError, match=text):
        converter(Order)({**GIVEN, **change}, "payload")


@pytest.mark.parametrize(
    ("annotation", "value", "wanted"),
    [
        (Any, {"a": [1]}, {"a": [1]}),
        (dict, {"a": 1}, {"a": 1}),
        (dict[str, Any], {"a": 1}, {"a": 1}),
        (list[int], [1, 2], [1, 2]),
        (tuple[int, ...], [1, 2], (1, 2)),
        (set[str], ["a"], {"a"}),
        (float, 3, 3.0),
        (int | str, "a", "a"),
        (date, "2026-01-02", date(2026, 1, 2)),
        (None, None, None),
    ],
)
def test_plain_shapes(annotation: Any, value: Any, wanted: Any) -> None:
    found = converter(annotation)(value, "payload")
    assert found == wanted
    assert type(found) is type(wanted)


def test_tombstones_fit_what_admits_none() -> None:
    assert [admits_none(a) for a in (Any, None, Order | None, dict[str, Any] | None)] == [True] * 4
    assert [admits_none(a) for a in (Order, dict, bytes)] == [False] * 3


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("application/json", True),
        ("application/json; charset=utf-8", True),
        ("application/cloudevents+json", True),
        ("application/avro", False),
        ("", False),
    ],
)
def test_json_by_its_content_type(kind: str, wanted: bool) -> None:  # noqa: FBT001 - parametrized
    assert is_json(kind) is wanted


def no_payload() -> None: ...
def wrong_name(order: Any, connection: Any) -> None: ...
def one_of_many(order: Any, messages: Any) -> None: ...
def odd_shape(order: complex) -> None: ...
def not_to_be_found(order: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def has_more(order: Any, retries: int = 3) -> None: ...
def wants_conn(order: Any, conn: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (no_payload, "must take the payload first"),
        (wrong_name, "may take conn and message by name"),
        (one_of_many, "may take conn and message by name"),
        (odd_shape, "cannot be turned into"),
        (not_to_be_found, "cannot be read"),
    ],
)
def test_handlers_that_cannot_be_called_are_refused(function: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        Consumer("t", group="g").on("e")(function)


def test_registration_is_checked() -> None:
    consumer = Consumer("t", group="g")
    consumer.on("e")(has_more)
    with pytest.raises(ConfigurationError, match="two handlers"):
        consumer.on("e")(has_more)
    with pytest.raises(ConfigurationError, match="transaction=False"):
        consumer.on("f", transaction=False)(wants_conn)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"group": ""}, "needs a group"),
        ({"concurrency": 0}, "at least 1"),
        ({"batch_size": 0}, "at least 1"),
        ({"commit_interval": 0}, "more than 0"),
        ({"drain_timeout": -1}, "negative"),
        ({"unhandled": "dead-letter"}, "needs a dead_letter_topic"),
        ({"kafka": {"enable_auto_commit": True}}, "offsets are committed after"),
        ({"kafka": {"max_poll_records": 1}}, "max_records"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        Consumer("t", **{"group": "g", **options})


async def test_consumer_without_handlers_does_not_start() -> None:
    with pytest.raises(ConfigurationError, match="no handlers"):
        await Consumer("t", group="g").serve()
    with pytest.raises(ConfigurationError, match="at least one topic"):
        Consumer(group="g")
