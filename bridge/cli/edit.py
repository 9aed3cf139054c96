"""`outbox-bridge edit`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from bridge.cli.given import headers_from, payload_from
from bridge.cli.options import settings_from
from bridge.cli.row_command import Asked, row_command

if TYPE_CHECKING:
    import psycopg

    from bridge.operations import Outcome, Selection


@row_command
def edit(
    asked: Asked,
    *,
    to_destination: Annotated[
        str | None,
        typer.Option("--to-destination", metavar="TEXT", help="The new destination."),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Set a header; may be repeated."),
    ] = None,
    drop_header: Annotated[
        list[str] | None,
        typer.Option("--drop-header", metavar="NAME", help="Take a header away; may be repeated."),
    ] = None,
    payload: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="The new payload: JSON, or @FILE, or - for stdin."),
    ] = None,
    tombstone: Annotated[
        bool, typer.Option("--tombstone", help="Leave no payload at all.")
    ] = False,
    content_type: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="The new payload is no JSON but of this media type."),
    ] = None,
) -> None:
    """Change destination, headers or payload of rows that are not sent: PENDING or FAILED.

    The status stays: `retry` a FAILED row afterwards. A payload is changed by id only. The audit
    keeps a SHA-256 of the old payload, or all of it with audit.payload = "full".

    Examples:
      outbox-bridge edit 4711 --payload @fixed.json --reason "amount was in the wrong unit"
      outbox-bridge edit --destination ordrs --to-destination orders --yes --reason "a typo"
      outbox-bridge edit 4711 --header tenant=b --drop-header debug --reason "wrong tenant"
    """
    from bridge.cli.row_action import run_action  # noqa: PLC0415 - after the options are checked
    from bridge.operations import Action, Edit, Unset, edit_options  # noqa: PLC0415 - likewise
    from bridge.operations import edit as act  # noqa: PLC0415 - likewise

    if tombstone and payload is not None:
        raise typer.BadParameter("give either --payload or --tombstone", param_hint="--tombstone")
    settings = settings_from(asked.config, database_url=asked.database_url, schema=asked.schema)
    new: object = payload_from(payload)
    change = Edit(
        destination=to_destination,
        headers=headers_from(header or []) or None,
        drop_headers=tuple(drop_header or ()),
        payload=new if payload is not None or tombstone else Unset.UNSET,
        content_type=content_type,
    )
    limit = settings.enqueue.max_payload_bytes

    def run(conn: psycopg.Connection[Any], selection: Selection, **common: Any) -> Outcome:
        return act(
            conn,
            selection,
            change,
            keep_payload=settings.audit.payload == "full",
            max_payload_bytes=limit,
            **common,
        )

    run_action(
        asked,
        Action.EDIT,
        run,
        settings=settings,
        options=edit_options(asked.selection(), change, limit),
    )
