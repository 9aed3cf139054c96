"""`traces`: what a drain costs with tracing on, by the share of sampled messages."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench import outbox
from tests.bench.drains import Drain, drain_by_relay
from tests.bench.figures import RATIO, BenchError, Findings, at_least, ratios
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.bench.lab import Lab
    from tests.bench.sizes import Sizes

_ROOT = Path(__file__).parents[2]
_GOALS = {0: 0.97, 1: 0.9, 100: 0.6}
"""Per cent of sampled messages, and the least share of the pace without tracing."""


def run(lab: Lab, sizes: Sizes, peer: Path | None) -> Findings:
    """Let drains take turns: without tracing, and with it on for each share of sampled messages."""
    del peer
    off: list[Drain] = []
    on: dict[int, list[Drain]] = {share: [] for share in _GOALS}
    with _receiver(lab.new_folder("otlp")) as variables:
        for number in range(sizes.pairs):
            # Who goes first changes, so that what an earlier run leaves behind is shared.
            sides: list[int | None] = [None, *_GOALS]
            turn = number % len(sides)
            for share in sides[turn:] + sides[:turn]:
                what = "off" if share is None else f"on, {share} % sampled"
                lab.progress(f"traces {number + 1}/{sizes.pairs}: {what}")
                if share is None:
                    off.append(_drain(lab, sizes.drain_rows, 100, None))
                else:
                    on[share].append(_drain(lab, sizes.drain_rows, share, variables))
    runs = [*off, *(drain for drains in on.values() for drain in drains)]
    found = Findings("traces", runs=[drain.as_dict() for drain in runs])
    rates = [drain.rows_per_second for drain in off]
    found.add("rows a second, tracing off", rates, "/s")
    found.add("relay CPU, tracing off", [drain.sender_cpu_us for drain in off], "µs/row")
    for share, drains in on.items():
        traced = [drain.rows_per_second for drain in drains]
        name = f"{share} % sampled"
        found.add(
            f"ratio to tracing off, {name}", ratios(traced, rates), RATIO, at_least(_GOALS[share])
        )
        found.add(f"relay CPU, {name}", [drain.sender_cpu_us for drain in drains], "µs/row")
    return found


def _drain(lab: Lab, rows: int, share: int, variables: Mapping[str, str] | None) -> Drain:
    server = lab.server()
    with server.database() as database, lab.topic() as topic:
        outbox.migrate(server, database)
        return drain_by_relay(lab, database, topic, rows, sampled_of_100=share, settings=variables)


@contextmanager
def _receiver(folder: Path) -> Iterator[dict[str, str]]:
    """Run a receiver that throws spans away; yields the variables that send them there."""
    path = folder / "port"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fixtures.otlp_receiver", str(path), "--discard"], cwd=_ROOT
    )
    try:
        wait_until(lambda: path.exists() and path.read_text(), "the receiver listens")
        if process.poll() is not None:
            raise BenchError("the receiver of spans has ended")
        yield {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{path.read_text().strip()}"}
    finally:
        process.kill()
        process.wait()
