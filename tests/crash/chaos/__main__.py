"""Plays random faults for a while: `python -m tests.crash.chaos --seconds 600 --seed 7`.

Ends with a table of faults and a verdict; exit code 1 where any invariant was broken.
"""

from __future__ import annotations

import argparse
import itertools
import shlex
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.crash.chaos.faults import BY_NAME, FAULTS
from tests.crash.chaos.report import describe_round, last_line, table
from tests.crash.chaos.rounds import chosen, play
from tests.crash.chaos.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from tests.crash.chaos.faults import Fault
    from tests.crash.chaos.rounds import Outcome


def main() -> int:
    """Run what the command line asks for; returns the exit code."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, _interrupted)
    outcomes: list[Outcome] = []
    folder = Path(tempfile.mkdtemp(prefix="outbox-bridge-chaos-"))
    started = time.monotonic()
    print(f"seed {arguments.seed}; the relays' output is kept in {folder}", flush=True)
    with Stage(folder) as stage:
        end = time.monotonic() + arguments.seconds
        for number, fault in _rounds(arguments):
            outcome = play(stage, arguments.seed, number, fault)
            outcomes.append(outcome)
            print(f"[{time.monotonic() - started:5.0f} s] {describe_round(outcome)}", flush=True)
            if time.monotonic() > end:
                break
    print(f"\n{table(outcomes)}\n")
    broken = [outcome for outcome in outcomes if not outcome.reckoning.holds]
    only = shlex.join(word for name in arguments.fault for word in ("--fault", name))
    for outcome in broken:
        print(
            f"round {outcome.number} ({outcome.fault.name}) again: "
            f"make chaos SEED={arguments.seed} ROUND={outcome.number}"
            + (f" ARGS={shlex.quote(only)}" if only else "")
        )
    print(last_line(outcomes), flush=True)
    return 1 if broken else 0


def _rounds(arguments: argparse.Namespace) -> Iterator[tuple[int, Fault]]:
    faults = [BY_NAME[name] for name in arguments.fault] or FAULTS
    rounds = chosen(arguments.seed, faults)
    if arguments.round is None:
        return rounds
    return itertools.islice(rounds, arguments.round - 1, arguments.round)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="begin no round after that")
    parser.add_argument("--seed", type=int, default=7, help="the same seed plays the same rounds")
    parser.add_argument("--round", type=int, help="play this round of the seed alone")
    parser.add_argument(
        "--fault", action="append", default=[], choices=list(BY_NAME), help="play this fault only"
    )
    return parser.parse_args()


def _interrupted(number: int, frame: FrameType | None) -> None:
    del frame
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
