"""`scale`: the drain beside much that is not to be sent, as a ratio to the plain drain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.bench import outbox
from tests.bench.drains import drain_by_relay
from tests.bench.figures import RATIO, Findings, at_least, ratios

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.lab import Lab
    from tests.bench.sizes import Sizes

Setting = Callable[["Lab", "Sizes", str, str], AbstractContextManager[None]]
"""Prepares a migrated database for a drain to a topic, and ends what it holds open."""


@dataclass(frozen=True)
class Variant:
    """What stands beside the drained rows, and the share of the plain drain to reach."""

    name: str
    prepare: Setting
    bound: float


@contextmanager
def _sent(lab: Lab, sizes: Sizes, database: str, topic: str) -> Iterator[None]:
    with lab.server().connect(database) as connection:
        outbox.add_sent(connection, topic, sizes.sent_rows)
        outbox.settle_down(connection)
    yield


@contextmanager
def _snapshot(lab: Lab, sizes: Sizes, database: str, topic: str) -> Iterator[None]:
    del sizes, topic
    with lab.server().connect(database) as holder:
        outbox.hold_snapshot(holder)
        yield


@contextmanager
def _tomorrow(lab: Lab, sizes: Sizes, database: str, topic: str) -> Iterator[None]:
    with lab.server().connect(database) as connection:
        outbox.add_tomorrow(connection, topic, sizes.tomorrow_rows)
    yield


@contextmanager
def _other(lab: Lab, sizes: Sizes, database: str, topic: str) -> Iterator[None]:
    with lab.server().connect(database) as connection:
        outbox.add_paused(connection, f"{topic}-other", sizes.other_rows)
    yield


def run(lab: Lab, sizes: Sizes, peer: Path | None) -> Findings:
    """Alternate the plain drain and each variant; the peer has no part in it."""
    del peer
    found = Findings("scale")
    variants = (
        Variant(f"beside {sizes.sent_rows:,} SENT rows", _sent, 0.9),
        Variant("under a held snapshot", _snapshot, 0.7),
        Variant(f"beside {sizes.tomorrow_rows:,} rows due tomorrow", _tomorrow, 0.95),
        Variant(f"beside {sizes.other_rows:,} rows of a paused destination", _other, 0.95),
    )
    for variant in variants:
        plain: list[float] = []
        beside: list[float] = []
        for number in range(sizes.pairs):
            for side in (plain, beside) if number % 2 == 0 else (beside, plain):
                case = variant if side is beside else None
                name = case.name if case else "plain drain"
                lab.progress(f"scale {number + 1}/{sizes.pairs}: {name}")
                side.append(_drain(lab, sizes, found, case))
        found.add(f"plain drain (for: {variant.name})", plain, "/s")
        found.add(f"drain {variant.name}", beside, "/s")
        found.add(f"ratio {variant.name}", ratios(beside, plain), RATIO, at_least(variant.bound))
    return found


def _drain(lab: Lab, sizes: Sizes, found: Findings, variant: Variant | None) -> float:
    server = lab.server()
    with ExitStack() as stack:
        database = stack.enter_context(server.database())
        topic = stack.enter_context(lab.topic())
        outbox.migrate(server, database)
        if variant:
            stack.enter_context(variant.prepare(lab, sizes, database, topic))
        drained = drain_by_relay(lab, database, topic, sizes.scale_rows)
    found.runs.append({**drained.as_dict(), "case": variant.name if variant else "plain"})
    return drained.rows_per_second
