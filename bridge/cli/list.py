"""`outbox-bridge list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from bridge.cli.options import (
    ConfigOption,
    DatabaseUrlOption,
    JsonOption,
    SchemaOption,
    settings_from,
)
from bridge.cli.output import Output, moment
from bridge.lifecycle import Status

if TYPE_CHECKING:
    from bridge.inspection import ListedMessage


def list_messages(
    *,
    status: Annotated[
        list[Status] | None,
        typer.Option(
            metavar="STATUS",
            case_sensitive=False,
            help="Only pending, processing, sent, failed or cancelled rows; may be repeated.",
        ),
    ] = None,
    destination: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Only this destination; may be repeated."),
    ] = None,
    event_type: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TEXT", help="Only this event type; may be repeated."),
    ] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=100_000, help="At most so many rows.")
    ] = 50,
    before: Annotated[
        int | None, typer.Option(metavar="ID", help="Only rows with a smaller outbox_id.")
    ] = None,
    after: Annotated[
        int | None, typer.Option(metavar="ID", help="Only rows with a larger outbox_id.")
    ] = None,
    oldest_first: Annotated[
        bool, typer.Option("--oldest-first", help="Smallest outbox_id first.")
    ] = False,
    config: ConfigOption = None,
    database_url: DatabaseUrlOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """List messages, newest first.

    PENDING, PROCESSING and FAILED rows are found by way of their queue, claims and failed list. A
    list of SENT, CANCELLED or all rows reads the table by outbox_id until enough match. Page on
    with --before (or --after) and the last outbox_id of the page; `--json` names it under `next`.

    Examples:
      outbox-bridge list --status failed
      outbox-bridge list --status pending --destination orders --oldest-first --limit 5
      outbox-bridge list --type order.created --json | jq '.messages[].message_key'
    """
    from bridge.database.reading import reading  # noqa: PLC0415 - after the options are checked
    from bridge.inspection import list_messages as select  # noqa: PLC0415 - likewise

    settings = settings_from(config, database_url=database_url, schema=schema)
    with reading(settings.database_url, settings.database.schema_name) as conn:
        messages = select(
            conn,
            settings.database.schema_name,
            statuses=status or (),
            destinations=destination or (),
            event_types=event_type or (),
            limit=limit,
            before=before,
            after=after,
            oldest_first=oldest_first,
        )
    output = Output(as_json=json)
    is_full = len(messages) == limit
    if json:
        page = {"after" if oldest_first else "before": messages[-1].outbox_id} if is_full else None
        output.json({"messages": [_document(message) for message in messages], "next": page})
        return
    output.table(
        ["id", "status", "destination", "type", "key", "created", "attempts", "error"],
        [
            [
                message.outbox_id,
                message.status,
                message.destination,
                message.event_type,
                message.message_key,
                moment(message.created_at),
                f"{message.retry_count}/{message.max_retry_count}",
                message.last_error_code,
            ]
            for message in messages
        ],
    )
    if is_full:
        option = "--after" if oldest_first else "--before"
        output.note(f"{limit} rows listed; go on with {option} {messages[-1].outbox_id}")


def _document(message: ListedMessage) -> dict[str, Any]:
    return {
        "outbox_id": message.outbox_id,
        "status": message.status,
        "destination": message.destination,
        "event_type": message.event_type,
        "message_key": message.message_key,
        "ordering_key": message.ordering_key,
        "created_at": message.created_at,
        "next_run_at": message.next_run_at,
        "retry_count": message.retry_count,
        "max_retry_count": message.max_retry_count,
        "claim_count": message.claim_count,
        "locked_by": message.locked_by,
        "sent_at": message.sent_at,
        "last_error_code": message.last_error_code,
        "last_error_msg": message.last_error_msg,
    }
