"""How much each benchmark does: in full, or quickly."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """Rows, seconds and repetitions. `pairs`: how often two sides alternate; the median counts."""

    pairs: int = 3
    drain_rows: int = 300_000
    rates: tuple[int, ...] = (500, 2_000)
    peer_rates: tuple[int, ...] = (500, 2_000)
    latency_seconds: int = 20
    warm_up_seconds: int = 5
    warm_up_rows: int = 30_000
    dead_entries: int = 500_000
    writer_connections: tuple[int, ...] = (4, 16)
    writer_seconds: int = 10
    scale_rows: int = 300_000
    sent_rows: int = 2_000_000
    tomorrow_rows: int = 100_000
    other_rows: int = 500_000
    fair_rows: int = 500_000
    held_rows: int = 200_000
    sick_rows: int = 100_000
    large_rows: int = 2_000
    view_rows: int = 5_000_000
    consumer_rows: int = 20_000


FULL = Sizes()

QUICK = Sizes(
    pairs=1,
    drain_rows=100_000,
    peer_rates=(500,),
    latency_seconds=6,
    warm_up_seconds=2,
    warm_up_rows=10_000,
    dead_entries=100_000,
    writer_seconds=3,
    scale_rows=60_000,
    sent_rows=200_000,
    tomorrow_rows=20_000,
    other_rows=100_000,
    fair_rows=100_000,
    held_rows=20_000,
    sick_rows=20_000,
    large_rows=200,
    view_rows=200_000,
    consumer_rows=4_000,
)
"""Ends within five minutes on two cores; too small for figures to quote."""
