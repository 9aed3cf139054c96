"""Runs the benchmarks: `python -m tests.bench [--quick] [--no-peer] [NAME …]`.

A missed goal is a line in the table, never a failure. Exit code 1 where a measurement did not come
about; what was measured before is reported all the same.
"""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from bridge.errors import LocalError
from tests.bench import (
    apart,
    consumer,
    drain,
    fair,
    large,
    latency,
    metering,
    order,
    retention,
    scale,
    traces,
    views,
    writers,
)
from tests.bench.debezium import ensure_jars
from tests.bench.figures import BenchError, Findings
from tests.bench.lab import Lab
from tests.bench.machine import describe_machine, describe_parts
from tests.bench.report import print_table, write_json
from tests.bench.sizes import FULL, QUICK

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

    from tests.bench.sizes import Sizes

_BENCHES: dict[str, Callable[[Lab, Sizes, Path | None], Findings]] = {
    "drain": drain.run,
    "latency": latency.run,
    "writers": writers.run,
    "scale": scale.run,
    "order": order.run,
    "apart": apart.run,
    "large": large.run,
    "fair": fair.run,
    "retention": retention.run,
    "views": views.run,
    "consumer": consumer.run,
    "metrics": metering.run,
    "traces": traces.run,
}
_WITH_PEER = {"drain", "latency"}


def main() -> int:
    """Run what the command line asks for; returns the exit code."""
    arguments = _arguments()
    names: list[str] = arguments.names or list(_BENCHES)
    sizes = QUICK if arguments.quick else FULL
    if arguments.pairs:
        sizes = dataclasses.replace(sizes, pairs=arguments.pairs)
    if arguments.rows:
        sizes = dataclasses.replace(sizes, drain_rows=arguments.rows, scale_rows=arguments.rows)
    with_peer = not arguments.no_peer and bool(_WITH_PEER & set(names))
    signal.signal(signal.SIGTERM, _interrupted)
    started = time.monotonic()

    def progress(line: str) -> None:
        print(f"[{time.monotonic() - started:5.0f} s] {line}", file=sys.stderr, flush=True)

    described: dict[str, Any] = {**describe_machine(), "sizes": dataclasses.asdict(sizes)}
    findings: list[Findings] = []
    failed = ""
    try:
        with Lab(progress) as lab:
            jars = ensure_jars(progress) if with_peer else None
            described |= describe_parts(lab, peer=with_peer)
            findings.extend(_BENCHES[name](lab, sizes, jars) for name in names)
    except (BenchError, LocalError) as error:
        failed = "\n".join([str(error), *getattr(error, "__notes__", [])])
    if findings:
        file = write_json(described, findings)
        print_table(described, findings)
        progress(f"written to {file}")
    if failed:
        print(f"bench failed: {failed}", file=sys.stderr)
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(_BENCHES))
    parser.add_argument("--quick", action="store_true", help="within five minutes, once each")
    parser.add_argument("--no-peer", action="store_true", help="without Debezium")
    parser.add_argument("--pairs", type=int, help="how often two sides alternate")
    parser.add_argument("--rows", type=int, help="rows of a drain")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(_BENCHES))
    if unknown:
        parser.error(f"no benchmark named {', '.join(unknown)}; there are {', '.join(_BENCHES)}")
    return arguments


def _interrupted(number: int, frame: FrameType | None) -> None:
    del frame
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
