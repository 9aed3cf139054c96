"""`retention`: a drain while old rows are pruned, beside one without."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.bench import outbox
from tests.bench.drains import Drain, drain_by_relay
from tests.bench.figures import RATIO, BenchError, Findings, at_least, ratios

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.bench.lab import Lab
    from tests.bench.sizes import Sizes


_KEPT_VARIABLES = ("PATH", "HOME", "PYTHONPATH")


def run(lab: Lab, sizes: Sizes, peer: Path | None) -> Findings:
    """Alternate drains in a database with old rows, with and without the pruner at work."""
    beside: list[Drain] = []
    alone: list[Drain] = []
    left: list[int] = []
    for number in range(sizes.pairs):
        sides = [beside, alone]
        for side in sides if number % 2 == 0 else reversed(sides):
            what = "pruning" if side is beside else "alone"
            lab.progress(f"retention {number + 1}/{sizes.pairs}: {what}")
            drained, old = _drain(lab, sizes, prunes=side is beside)
            side.append(drained)
            if side is beside:
                left.append(sizes.other_rows - old)
    found = Findings("retention", runs=[one.as_dict() for one in [*beside, *alone]])
    rates, usual = [[one.rows_per_second for one in side] for side in (beside, alone)]
    found.add("rows a second, beside pruning", rates, "/s")
    found.add("rows a second, without", usual, "/s")
    found.add("ratio", ratios(rates, usual), RATIO, at_least(0.85))
    found.add("rows pruned meanwhile", left, "")
    return found


def _drain(lab: Lab, sizes: Sizes, *, prunes: bool) -> tuple[Drain, int]:
    server = lab.server()
    with server.database() as database, lab.topic() as topic:
        outbox.migrate(server, database)
        with server.connect(database) as connection:
            outbox.add_sent(connection, "long-ago", sizes.other_rows)
            connection.execute(
                "update app_outbox set created_at = now() - interval '9 days', "
                "sent_at = now() - interval '8 days'"
            )
            connection.execute("vacuum (analyze) app_outbox")
        with _pruner(server.url(database), lab.new_folder("prune"), prunes=prunes):
            drained = drain_by_relay(lab, database, topic, sizes.drain_rows)
        with server.connect(database) as connection:
            row = connection.execute(
                "select count(*) from app_outbox where destination = 'long-ago'"
            ).fetchone()
    old = row[0] if row else 0
    if prunes and old == sizes.other_rows:
        raise BenchError("nothing was pruned while the relay sent")
    return drained, old


@contextmanager
def _pruner(url: str, folder: Path, *, prunes: bool) -> Iterator[None]:
    """Run `outbox-bridge prune`, which rests as a relay's own pruner does, until the drain ends."""
    if not prunes:
        yield
        return
    environment = {
        **{name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
        "OUTBOX_BRIDGE_DATABASE_URL": url,
    }
    with (folder / "prune.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "bridge", "prune"],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            yield
        finally:
            process.kill()
            process.wait()
