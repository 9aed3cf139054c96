"""`outbox-bridge keys`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from bridge.cli.options import (
    ConfigOption,
    DatabaseUrlOption,
    JsonOption,
    SchemaOption,
    settings_from,
)
from bridge.cli.output import Output, moment


def keys(
    *,
    destination: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Only this destination; may be repeated."),
    ] = None,
    config: ConfigOption = None,
    database_url: DatabaseUrlOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """List ordering keys that are held up, the row that holds each, since when and until when.

    A failed row holds later rows of its ordering key (route option on_failure = "block"), a row
    that is claimed alone does so meanwhile. A PENDING row is tried again at the time shown; a
    FAILED one holds its key until it is retried, cancelled or skipped.

    Examples:
      outbox-bridge keys
      outbox-bridge keys --destination orders --json | jq '.keys[].ordering_key'
    """
    from bridge.database.reading import reading  # noqa: PLC0415 - after the options are checked
    from bridge.held_keys import list_held_keys  # noqa: PLC0415 - likewise

    settings = settings_from(config, database_url=database_url, schema=schema)
    name = settings.database.schema_name
    with reading(settings.database_url, name) as conn:
        held = list_held_keys(conn, name, destinations=destination or ())
    output = Output(as_json=json)
    if json:
        output.json({"keys": [{**asdict(key), "until": key.until} for key in held]})
        return
    if not held:
        output.line("No key is held.")
        return
    output.table(
        ["destination", "key", "held by", "status", "error", "since", "until", "waiting"],
        [
            [
                key.destination,
                key.ordering_key,
                key.outbox_id,
                key.status,
                key.error_code,
                moment(key.held_at),
                key.until,
                key.waiting,
            ]
            for key in held
        ],
    )
