"""`outbox-bridge enqueue`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from bridge.cli.given import headers_from, payload_from, time_from
from bridge.cli.options import (
    ConfigOption,
    DatabaseUrlOption,
    JsonOption,
    SchemaOption,
    settings_from,
)
from bridge.cli.output import Output


def enqueue(
    *,
    key: Annotated[
        str, typer.Option(metavar="TEXT", help="Message key: the business key, unique.")
    ],
    event_type: Annotated[
        str, typer.Option("--type", metavar="TEXT", help="Event type, such as order.created.")
    ],
    destination: Annotated[
        str, typer.Option(metavar="TEXT", help="Destination; by default the topic's name.")
    ],
    payload: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="JSON, or @FILE, or - for stdin. Without it: a tombstone."
        ),
    ] = None,
    content_type: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="The payload is no JSON but of this media type, sent byte for byte.",
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Record header; may be repeated."),
    ] = None,
    ordering_key: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Rows of one destination and ordering key go out in order."
        ),
    ] = None,
    not_before: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Send not before this ISO 8601 time (UTC if it says none)."
        ),
    ] = None,
    on_duplicate: Annotated[
        Literal["error", "absorb", "strict"],
        typer.Option(
            metavar="MODE",
            help="The key exists: error if it stands for another event, absorb always, "
            "strict also compares the payload.",
        ),
    ] = "error",
    config: ConfigOption = None,
    database_url: DatabaseUrlOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """Write one message to the outbox, in a transaction of its own.

    Prints its id and whether it was created or absorbed by a row that has the same key.

    Examples:
      outbox-bridge enqueue --key k1 --type t --destination orders --payload '{"id": 1}'
      outbox-bridge enqueue --key k2 --type t --destination orders --payload @event.json
      generate | outbox-bridge enqueue --key k3 --type t --destination orders --payload -
    """
    from bridge.database.reading import reading  # noqa: PLC0415 - after the options are checked
    from bridge.enqueue import enqueue as write  # noqa: PLC0415 - likewise

    settings = settings_from(config, database_url=database_url, schema=schema)
    name = settings.database.schema_name
    # Read before the transaction begins: a slow writer at the other end must not hold it open.
    content = payload_from(payload)
    with reading(settings.database_url, name) as conn, conn.transaction():
        result = write(
            conn,
            message_key=key,
            event_type=event_type,
            destination=destination,
            payload=content,
            content_type=content_type,
            headers=headers_from(header or []),
            ordering_key=ordering_key,
            not_before=time_from(not_before, "--not-before"),
            on_duplicate=on_duplicate,
            schema=name,
            max_payload_bytes=settings.enqueue.max_payload_bytes,
        )
    output = Output(as_json=json)
    if json:
        output.json(result)
    else:
        output.line(f"{result.outbox_id} {'created' if result.created else 'absorbed'}")
