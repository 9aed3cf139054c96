"""`large`: how much memory a relay needs for payloads of 900 KiB each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bench import outbox
from tests.bench.figures import BenchError, Findings, at_most
from tests.bench.relay_process import RelayProcess

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.lab import Lab
    from tests.bench.sizes import Sizes

_KIB = 900
_PATIENCE = 600.0


def run(lab: Lab, sizes: Sizes, peer: Path | None) -> Findings:
    """Send rows of 900 KiB; they compress well, so that disk and network are not what is tested."""
    del peer
    found = Findings("large")
    peaks: list[float] = []
    for number in range(sizes.pairs):
        lab.progress(f"large {number + 1}/{sizes.pairs}: {sizes.large_rows:,} rows")
        peaks.append(_peak(lab, sizes.large_rows))
    found.runs += [{"rows": sizes.large_rows, "peak_mib": peak} for peak in peaks]
    # 300 MB, in the unit that the kernel counts in.
    name = f"relay memory, peak, {sizes.large_rows:,} rows of {_KIB} KiB"
    found.add(name, peaks, "MiB", at_most(286))
    return found


def _peak(lab: Lab, rows: int) -> float:
    server = lab.server()
    with server.database() as database, lab.topic() as topic:
        outbox.migrate(server, database)
        with server.connect(database) as connection:
            outbox.fill_large(connection, topic, rows, _KIB * 1024)
            with RelayProcess(
                server.url(database),
                lab.kafka.bootstrap_servers,
                "--until-empty",
                folder=lab.new_folder("relay"),
            ) as relay:
                usage = relay.wait(_PATIENCE)
            left = outbox.unsent(connection, topic)
    if left:
        raise BenchError(f"the relay left {left} of {rows} large rows unsent")
    return usage.peak_mib
