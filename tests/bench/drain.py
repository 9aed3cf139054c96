"""`drain`: a backlog is sent; rows a second, and what a row costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bench import outbox
from tests.bench.drains import Drain, drain_by_debezium, drain_by_relay
from tests.bench.figures import RATIO, Findings, at_least, at_most, ratios

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.lab import Lab
    from tests.bench.sizes import Sizes


def run(lab: Lab, sizes: Sizes, peer: Path | None) -> Findings:
    """Alternate the relay and the peer; `peer` is the folder with its jars, None for none."""
    ours: list[Drain] = []
    theirs: list[Drain] = []
    for number in range(sizes.pairs):
        # The one that goes first changes, so that what an earlier run leaves behind is shared.
        sides = [ours, theirs] if peer else [ours]
        for side in sides if number % 2 == 0 else reversed(sides):
            if side is ours:
                lab.progress(f"drain {number + 1}/{sizes.pairs}: outbox-bridge")
                ours.append(_drain_by_relay(lab, sizes.drain_rows))
            elif peer is not None:
                lab.progress(f"drain {number + 1}/{sizes.pairs}: Debezium")
                theirs.append(drain_by_debezium(lab, peer, sizes.drain_rows))
    return _findings(ours, theirs)


def _drain_by_relay(lab: Lab, rows: int) -> Drain:
    server = lab.server()
    with server.database() as database, lab.topic() as topic:
        outbox.migrate(server, database)
        return drain_by_relay(lab, database, topic, rows)


def _findings(ours: list[Drain], theirs: list[Drain]) -> Findings:
    found = Findings("drain", runs=[run.as_dict() for run in [*ours, *theirs]])
    rates, other_rates = [[run.rows_per_second for run in side] for side in (ours, theirs)]
    found.add("rows a second", rates, "/s")
    found.add("the same, process start to end", [r.process_rows_per_second for r in ours], "/s")
    found.add("rows a second, Debezium", other_rates, "/s")
    found.add("ratio to Debezium", ratios(rates, other_rates), RATIO, at_least(2.2))
    found.add("relay CPU, whole life", [run.sender_cpu_us for run in ours], "µs/row", at_most(11))
    found.add("PostgreSQL CPU", [run.postgres_cpu_us for run in ours], "µs/row")
    found.add("Kafka CPU", [run.kafka_cpu_us for run in ours], "µs/row")
    found.add("Debezium CPU, from its first record", [r.sender_cpu_us for r in theirs], "µs/row")
    found.add("PostgreSQL CPU, Debezium", [run.postgres_cpu_us for run in theirs], "µs/row")
    found.add("Kafka CPU, Debezium", [run.kafka_cpu_us for run in theirs], "µs/row")
    found.add("WAL of claim and settle", [run.wal_bytes for run in ours], "B/row", at_most(450))
    found.add("HOT updates", [100 * run.hot_share for run in ours], "%", at_least(99))
    found.add("relay memory, peak", [run.peak_mib for run in ours], "MiB", at_most(120))
    found.add("Debezium memory, peak", [run.peak_mib for run in theirs], "MiB")
    return found
