"""The shop's result as a table and as JSON (pure)."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bridge.demo.verdict import failed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bridge.demo.shop.figures import ShopFigures
    from bridge.demo.verdict import Check

COLUMNS = ("", "call in the transaction", "outbox")


def comparison(figures: ShopFigures) -> list[tuple[str, int | None, int | None]]:
    """Return the rows of the table: what each way of taking orders came to."""
    naive, outbox = figures.naive, figures.outbox
    return [
        ("orders", naive.orders, outbox.orders),
        ("charges", naive.charges, outbox.charges),
        ("notifications", naive.notifications, outbox.notifications),
        ("charged without order", naive.charged_without_order, outbox.charged_without_order),
        ("charged twice", naive.charged_twice, outbox.charged_twice),
    ]


def circumstances(figures: ShopFigures) -> dict[str, str]:
    """Return what happened meanwhile."""
    f = figures
    return {
        "broker": f.broker,
        "database": f.database,
        "rolled back": f"{f.declined:,} orders, after their message was enqueued",
        "records": f"{f.records:,} of {f.messages:,} messages: {f.duplicates:,} duplicates",
        "late answers": f"{f.late_answers:,} charges that timed out, "
        f"{f.stored_answers:,} answers from the API's memory",
        "killed": f"{f.kills:,} processes",
        "time": f"{f.seconds:.0f} s",
    }


def document(
    figures: ShopFigures, checks: list[Check], tree: Sequence[str], kept: Path | None
) -> dict[str, Any]:
    """Return everything for programs: the figures, each check, the trace, and the outcome."""
    return {
        "ok": not failed(checks),
        **asdict(figures),
        "duplicates": figures.duplicates,
        "checks": [
            {"name": one.name, "ok": one.holds, "claim": one.claim, "counted": one.counted}
            for one in checks
        ],
        "tree": list(tree),
        "kept": str(kept) if kept else None,
    }
