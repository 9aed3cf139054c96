"""The table of faults at the end of a run, and its last line."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.crash.chaos.rounds import Outcome

_HEADINGS = ("fault", "rounds", "rows", "duplicates", "bound", "lost", "out of order", "failed")


def describe_round(outcome: Outcome) -> str:
    """Return one round in one line, its problems below."""
    found = outcome.reckoning
    line = (
        f"round {outcome.number}: {outcome.fault.name}: {found.rows} rows, "
        f"{found.duplicates} duplicates of {found.bound} in flight"
    )
    if found.without_offset:
        line += f", {found.without_offset} without offset"
    return "\n".join([line, *(f"    FAILED {problem}" for problem in found.problems)])


def table(outcomes: Sequence[Outcome]) -> str:
    """Return the table of faults with a line of sums."""
    by_fault: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_fault[outcome.fault.name].append(outcome)
    lines = [_HEADINGS, *(_line(name, of) for name, of in sorted(by_fault.items()))]
    lines.append(_line("(all)", outcomes))
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADINGS))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def _line(name: str, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    found = [outcome.reckoning for outcome in outcomes]
    return (
        name,
        str(len(found)),
        str(sum(one.rows for one in found)),
        str(sum(one.duplicates for one in found)),
        str(sum(one.bound for one in found)),
        str(sum(one.lost for one in found)),
        str(sum(one.out_of_order for one in found)),
        str(sum(not one.holds for one in found)),
    )


def last_line(outcomes: Sequence[Outcome]) -> str:
    """Return the verdict."""
    found = [outcome.reckoning for outcome in outcomes]
    duplicates, bound = sum(one.duplicates for one in found), sum(one.bound for one in found)
    is_within = all(one.duplicates <= one.bound for one in found)
    failed = sum(not one.holds for one in found)
    return (
        f"lost {sum(one.lost for one in found)}, "
        f"out of order {sum(one.out_of_order for one in found)}, "
        f"duplicates {duplicates} {'within' if is_within else 'BEYOND'} the bound of {bound}, "
        f"failed rounds {failed} of {len(found)}"
    )
