"""`latency`: milliseconds from commit to consumer."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.bench import outbox
from tests.bench.debezium import LATENCY, Debezium
from tests.bench.figures import RATIO, Findings, at_most, ratios
from tests.bench.latencies import SLOW_MS, SLOW_RATE, Latency, measure
from tests.bench.relay_process import RelayProcess

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.lab import Lab
    from tests.bench.sizes import Sizes

_GOAL_RATE = 500


def run(lab: Lab, sizes: Sizes, peer: Path | None) -> Findings:
    """Alternate the relay and the peer at each rate; then the relay's two hard cases."""
    found = Findings("latency")
    for rate in sizes.rates:
        ours: list[Latency] = []
        theirs: list[Latency] = []
        for number in range(sizes.pairs):
            sides = [ours, theirs] if peer and rate in sizes.peer_rates else [ours]
            for side in sides if number % 2 == 0 else reversed(sides):
                name = "outbox-bridge" if side is ours else "Debezium"
                lab.progress(f"latency at {rate}/s {number + 1}/{sizes.pairs}: {name}")
                if side is ours:
                    ours.append(_relay(lab, sizes, rate))
                elif peer is not None:
                    theirs.append(_debezium(lab, sizes, peer, rate))
        _add_rate(found, rate, ours, theirs)
    _add_hard_cases(lab, sizes, found)
    return found


def _add_rate(found: Findings, rate: int, ours: list[Latency], theirs: list[Latency]) -> None:
    found.runs += [each.as_dict() for each in [*ours, *theirs]]
    for name, bound in (("p50", 1.0), ("p99", 0.8)):
        mine, other = ([getattr(each, f"{name}_ms") for each in side] for side in (ours, theirs))
        goal = at_most(bound) if rate == _GOAL_RATE else None
        found.add(f"{name} at {rate:,}/s", mine, "ms")
        found.add(f"{name} at {rate:,}/s, Debezium", other, "ms")
        found.add(f"{name} at {rate:,}/s, ratio to Debezium", ratios(mine, other), RATIO, goal)


def _add_hard_cases(lab: Lab, sizes: Sizes, found: Findings) -> None:
    mixed: list[Latency] = []
    snapshot: list[Latency] = []
    for number in range(sizes.pairs):
        lab.progress(f"latency beside slow transactions {number + 1}/{sizes.pairs}")
        mixed.append(_relay(lab, sizes, _GOAL_RATE, slow=True))
        lab.progress(f"latency under a held snapshot {number + 1}/{sizes.pairs}")
        snapshot.append(_relay(lab, sizes, _GOAL_RATE, dead_entries=sizes.dead_entries))
    beside = f"beside {SLOW_RATE}/s held {SLOW_MS} ms"
    found.add(f"p50 {beside}", [each.p50_ms for each in mixed], "ms")
    found.add(f"p99 {beside}", [each.p99_ms for each in mixed], "ms")
    slow50 = [each.slow_p50_ms for each in mixed if each.slow_p50_ms is not None]
    slow99 = [each.slow_p99_ms for each in mixed if each.slow_p99_ms is not None]
    found.add("p50 of those held transactions", slow50, "ms", at_most(10))
    found.add("p99 of those held transactions", slow99, "ms")
    under = f"under a held snapshot, {sizes.dead_entries:,} dead entries"
    found.add(f"p50 {under}", [each.p50_ms for each in snapshot], "ms")
    found.add(f"p99 {under}", [each.p99_ms for each in snapshot], "ms")
    found.runs += [{**each.as_dict(), "case": "slow transactions"} for each in mixed]
    found.runs += [{**each.as_dict(), "case": "held snapshot"} for each in snapshot]


def _relay(
    lab: Lab, sizes: Sizes, rate: int, *, slow: bool = False, dead_entries: int = 0
) -> Latency:
    server = lab.server()
    with ExitStack() as stack:
        database = stack.enter_context(server.database())
        topic = stack.enter_context(lab.topic())
        outbox.migrate(server, database)
        if dead_entries:
            holder = stack.enter_context(server.connect(database))
            outbox.hold_snapshot(holder)
            with server.connect(database) as connection:
                outbox.add_dead_entries(connection, topic, dead_entries)
        relay = stack.enter_context(
            RelayProcess(
                server.url(database),
                lab.kafka.bootstrap_servers,
                folder=lab.new_folder("relay"),
            )
        )
        outbox.await_relay(server, database)
        found = measure(
            lab,
            server,
            database,
            topic,
            side="outbox-bridge",
            rate=rate,
            sizes=sizes,
            slow=slow,
        )
        relay.stop()
    return found


def _debezium(lab: Lab, sizes: Sizes, jars: Path, rate: int) -> Latency:
    server = lab.server(logical_wal=True)
    with server.database() as database, lab.topic() as topic:
        outbox.migrate(server, database)
        folder = lab.new_folder("debezium")
        bootstrap = lab.kafka.bootstrap_servers
        with (
            Debezium(server, database, bootstrap, LATENCY, jars=jars, folder=folder) as peer,
            peer.running(),
        ):
            return measure(
                lab,
                server,
                database,
                topic,
                side="debezium",
                rate=rate,
                sizes=sizes,
            )
