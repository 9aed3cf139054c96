"""How commands show the switches that are set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.cli.output import moment

if TYPE_CHECKING:
    from bridge.cli.output import Output
    from bridge.switches import SwitchView

SWITCH_NAMES = {
    "paused": "paused",
    "rows_per_second": "rows a second",
    "batch_rows": "rows a claim",
    "quiet_hours": "quiet hours",
}
"""Names for people, by column."""


def switch_table(output: Output, switches: list[SwitchView]) -> None:
    """Write one line for each switch: what it is set to, by whom, when and why."""
    output.table(
        ["switched", "switch", "setting", "in force", "by", "since", "reason"],
        [
            [
                "(all)" if one.destination == "*" else one.destination,
                SWITCH_NAMES[one.switch],
                one.setting,
                {True: "yes", False: "not now", None: "no: unreadable"}[one.effective],
                one.changed_by,
                moment(one.changed_at),
                one.reason,
            ]
            for one in switches
        ],
    )
