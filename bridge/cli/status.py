"""`outbox-bridge status`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bridge.cli.options import (
    ConfigOption,
    DatabaseUrlOption,
    JsonOption,
    SchemaOption,
    settings_from,
)
from bridge.cli.output import Cell, Output, age, moment
from bridge.cli.switch_table import switch_table
from bridge.lifecycle import Status

if TYPE_CHECKING:
    from bridge.monitor import Backlog


def status(
    *,
    config: ConfigOption = None,
    database_url: DatabaseUrlOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """Show what is unsent, failed and sent, which switches are set and which relays live.

    The counts are exact: they are all of one moment. `due` rows may go out now, `later` rows wait
    for their next_run_at; `oldest` tells since when the longest waiting row could have gone out.

    Examples:
      outbox-bridge status
      outbox-bridge status --json | jq .counts.FAILED
    """
    from bridge.database.reading import reading  # noqa: PLC0415 - after the options are checked
    from bridge.monitor import snapshot  # noqa: PLC0415 - likewise

    settings = settings_from(config, database_url=database_url, schema=schema)
    with reading(settings.database_url, settings.database.schema_name) as conn:
        backlog = snapshot(conn, settings.database.schema_name)
    output = Output(as_json=json)
    if json:
        output.json(document(backlog, settings.database.schema_name))
    else:
        _tables(output, backlog)


def document(backlog: Backlog, schema: str) -> dict[str, Any]:
    """Return the backlog as the JSON document of `status`."""
    return {
        "taken_at": backlog.taken_at,
        "schema": schema,
        "counts": backlog.counts,
        "due": backlog.due,
        "later": backlog.later,
        "oldest_unsent_seconds": backlog.oldest_unsent_seconds,
        "destinations": {name: asdict(one) for name, one in backlog.destinations.items()},
        "failures": backlog.failures,
        "switches": [asdict(switch) for switch in backlog.switches],
        "relays": [asdict(relay) for relay in backlog.relays],
    }


def _tables(output: Output, backlog: Backlog) -> None:
    rows: list[list[Cell]] = [
        [
            name,
            *(one.counts[status] for status in Status),
            one.due,
            one.later,
            age(one.oldest_unsent_seconds),
        ]
        for name, one in backlog.destinations.items()
    ]
    counts = backlog.counts
    total: list[Cell] = [counts[status] for status in Status]
    last: list[Cell] = [backlog.due, backlog.later, age(backlog.oldest_unsent_seconds)]
    output.table(
        ["destination", *(status.value for status in Status), "due", "later", "oldest"],
        [*rows, ["(all)", *total, *last]],
    )
    if backlog.failures:
        output.line()
        output.table(
            ["failed in", "error", "rows", "first", "latest"],
            [
                [
                    group.destination,
                    group.error_code,
                    group.count,
                    moment(group.first_at),
                    moment(group.latest_at),
                ]
                for group in backlog.failures
            ],
        )
    if backlog.switches:
        output.line()
        switch_table(output, backlog.switches)
    output.line()
    if not backlog.relays:
        output.line("No relay is registered.")
        return
    output.table(
        ["relay", "state", "version", "host", "pid", "silent for", "claims"],
        [
            [
                relay.relay_name,
                relay.state,
                relay.version,
                relay.host,
                relay.pid,
                age(relay.silent_seconds),
                relay.claims,
            ]
            for relay in backlog.relays
        ],
    )
