"""The demo's result as a table and as JSON (pure)."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bridge.demo.verdict import failed

if TYPE_CHECKING:
    from pathlib import Path

    from bridge.demo.figures import Figures
    from bridge.demo.verdict import Check


def table(figures: Figures) -> dict[str, str]:
    """Return the result table, first the broker."""
    f = figures
    rescue = f" within {f.rescue_seconds:.1f} s" if f.rescue_seconds is not None else ""
    return {
        "broker": f.broker,
        "database": f.database,
        "business rows": f"{f.orders:,} orders, which imply {f.order_events:,} messages",
        "enqueued": f"{f.enqueued:,}",
        "rolled back": f"{f.rolled_back:,} messages in {f.rollbacks:,} transactions",
        "absorbed": f"{f.absorbed:,} of {f.enqueued_twice:,} enqueued twice",
        "SENT": f"{f.sent:,}",
        "received": f"{f.received_distinct:,} different in {f.received:,} records",
        "duplicates": f"{f.duplicates:,}",
        "lost": f"{f.lost:,}",
        "order inversions": f"{f.inversions:,} of {f.ordered:,} with an ordering key",
        "relay killed": f"{_times(f.kills)}, {f.in_flight_at_kill:,} rows in flight",
        "rows taken back": f"{f.rescued:,}{rescue}",
        "throughput": _rate(f.throughput)
        + f" (a backlog of {f.backlog:,}, from the relays' start to its last receipt)",
        "latency p50": f"{_ms(f.latency_p50_ms)} (commit to consumer, {f.latency_messages:,} "
        f"messages at {f.latency_rate:.0f}/s)",
        "latency p99": _ms(f.latency_p99_ms),
        "time": f"{f.seconds:.0f} s",
    }


def document(figures: Figures, checks: list[Check], kept: Path | None) -> dict[str, Any]:
    """Return everything for programs: the figures, each check, and the outcome."""
    return {
        "ok": not failed(checks),
        **asdict(figures),
        "checks": [
            {
                "name": check.name,
                "ok": check.holds,
                "claim": check.claim,
                "counted": check.counted,
            }
            for check in checks
        ],
        "kept": str(kept) if kept else None,
    }


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _rate(value: float | None) -> str:
    return f"{value:,.0f} messages/s" if value is not None else "not measured"


def _ms(value: float | None) -> str:
    return f"{value:.1f} ms" if value is not None else "not measured"
