"""`order`: the drain of rows with ordering keys, as a ratio to the drain of rows without."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.bench import outbox
from tests.bench.drains import drain_by_relay
from tests.bench.figures import RATIO, Findings, at_least, ratios

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.lab import Lab
    from tests.bench.sizes import Sizes

_MANY = 10_000


def run(lab: Lab, sizes: Sizes, peer: Path | None) -> Findings:
    """Let the four drains take turns; the peer has no part in it."""
    del peer
    found = Findings("order")
    rates: dict[str, list[float]] = {"plain": [], "many": [], "one": [], "held": []}
    for number in range(sizes.pairs):
        for case in list(rates) if number % 2 == 0 else reversed(list(rates)):
            lab.progress(f"order {number + 1}/{sizes.pairs}: {case}")
            rates[case].append(_drain(lab, sizes, found, case))
    plain, many, one, held = rates.values()
    found.add("plain drain", plain, "/s")
    found.add(f"drain with {_MANY:,} keys", many, "/s")
    found.add(f"ratio with {_MANY:,} keys", ratios(many, plain), RATIO, at_least(0.8))
    found.add("drain with one key", one, "/s", at_least(10_000))
    beside = f"beside one key with {sizes.held_rows:,} held rows"
    found.add(f"drain {beside}", held, "/s")
    found.add(f"ratio {beside}", ratios(held, plain), RATIO, at_least(0.9))
    return found


def _drain(lab: Lab, sizes: Sizes, found: Findings, case: str) -> float:
    server = lab.server()
    keys = {"many": _MANY, "one": 1}.get(case)
    with ExitStack() as stack:
        database = stack.enter_context(server.database())
        topic = stack.enter_context(lab.topic())
        outbox.migrate(server, database)
        if case == "held":
            with server.connect(database) as connection:
                outbox.add_held(connection, topic, sizes.held_rows)
        drained = drain_by_relay(lab, database, topic, sizes.scale_rows, keys=keys)
    found.runs.append({**drained.as_dict(), "case": case})
    return drained.rows_per_second
