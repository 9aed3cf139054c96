"""`outbox-bridge show`."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from bridge.cli.options import (
    ConfigOption,
    DatabaseUrlOption,
    JsonOption,
    SchemaOption,
    settings_from,
)
from bridge.cli.output import Output, moment

if TYPE_CHECKING:
    from bridge.inspection import AuditEntry, StoredMessage
    from bridge.settings import Settings

_SHOWN = 2000
"""Characters (of JSON) or bytes of a payload that people are shown without `--full`."""


def show(
    reference: Annotated[str, typer.Argument(metavar="ID|KEY", help="outbox_id or message key.")],
    *,
    key: Annotated[
        bool, typer.Option("--key", help="Read the argument as a message key, never as an id.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Do not cut a long payload.")] = False,
    config: ConfigOption = None,
    database_url: DatabaseUrlOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """Show everything about one message: state, payload, headers, error, where it landed.

    A long payload is cut unless --full is given; `--json` says so under `payload_cut`, and carries
    a cut one as text under `payload_start` instead of `payload`.

    Examples:
      outbox-bridge show 4711
      outbox-bridge show order-17-created --full
      outbox-bridge show 4711 --json --full | jq .payload
    """
    from bridge.database.reading import reading  # noqa: PLC0415 - after the options are checked
    from bridge.inspection import find_message  # noqa: PLC0415 - likewise

    settings = settings_from(config, database_url=database_url, schema=schema)
    name = settings.database.schema_name
    with reading(settings.database_url, name) as conn:
        message, audit = find_message(
            conn, reference, name, by_key=key, payload_limit=None if full else _SHOWN
        )
    output = Output(as_json=json)
    if json:
        output.json(_document(message, audit, settings))
    else:
        _tables(output, message, audit, settings)


def _document(
    message: StoredMessage, audit: list[AuditEntry], settings: Settings
) -> dict[str, Any]:
    route = settings.router().route(message.destination)
    document: dict[str, Any] = {
        "outbox_id": message.outbox_id,
        "status": message.status,
        "message_key": message.message_key,
        "event_type": message.event_type,
        "destination": message.destination,
        "topic": route.topic,
        "ordering_key": message.ordering_key,
        "trace_id": message.trace_id,
        "headers": message.header_pairs,
        "content_type": message.content_type,
        "payload_kind": message.payload_kind,
        "payload_size": message.payload_size,
        "payload_cut": message.is_cut,
        **_payload(message),
        "created_at": message.created_at,
        "next_run_at": message.next_run_at,
        "updated_at": message.updated_at,
        "retry_count": message.retry_count,
        "max_retry_count": message.max_retry_count,
        "claim_count": message.claim_count,
        "last_error_code": message.last_error_code,
        "last_error_msg": message.last_error_msg,
        "locked_by": message.locked_by,
        "locked_at": message.locked_at,
        "claim_id": message.claim_id,
        "sent_at": message.sent_at,
        "landed": message.landed,
        "audit": audit,
    }
    return document


def _payload(message: StoredMessage) -> dict[str, Any]:
    if message.payload_bytes is not None:
        return {"payload_base64": base64.b64encode(message.payload_bytes).decode()}
    if message.payload_text is None:
        return {"payload": None}
    if message.is_cut:
        return {"payload_start": message.payload_text}
    # The text as it is: a number beyond 64 bits or a repeated name must not change on the way.
    return {"payload": orjson.Fragment(message.payload_text)}


def _tables(
    output: Output, message: StoredMessage, audit: list[AuditEntry], settings: Settings
) -> None:
    route = settings.router().route(message.destination)
    error = " ".join(filter(None, (message.last_error_code, message.last_error_msg)))
    landed = message.landed
    output.pairs(
        {
            "id": message.outbox_id,
            "status": message.status,
            "message key": message.message_key,
            "event type": message.event_type,
            "destination": message.destination,
            "topic": route.topic,
            "ordering key": message.ordering_key,
            "trace id": message.trace_id,
            "created": moment(message.created_at),
            "not before": message.next_run_at,
            "updated": moment(message.updated_at),
            "charged attempts": f"{message.retry_count} of {message.max_retry_count}",
            "handed to Kafka": f"{message.claim_count} times",
            "error": error or None,
            "claimed by": message.locked_by,
            "claimed": moment(message.locked_at),
            "claim id": str(message.claim_id) if message.claim_id else None,
            "sent": moment(message.sent_at),
            "landed in": (
                f"{landed['topic']}, partition {landed['partition']}, offset {landed['offset']}"
                if landed
                else None
            ),
        }
    )
    if message.header_pairs:
        output.line()
        output.table(["header", "value"], [[k, str(v)] for k, v in message.header_pairs.items()])
    output.line()
    kind = message.content_type or ("application/json" if message.payload_kind == "json" else "")
    if message.payload_kind == "tombstone":
        output.line("no payload (tombstone)")
    else:
        output.line(f"payload, {message.payload_size} bytes {kind}".rstrip())
        output.text(
            message.payload_text if message.payload_text is not None else _readable(message)
        )
        if message.is_cut:
            output.note("the payload is cut; --full shows all of it")
    if audit:
        output.line()
        output.table(
            ["when", "action", "by", "from", "reason"],
            [
                [
                    moment(entry.changed_at),
                    entry.action_name,
                    entry.changed_by,
                    entry.source,
                    entry.reason,
                ]
                for entry in audit
            ],
        )


def _readable(message: StoredMessage) -> str:
    data = message.payload_bytes or b""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.hex(" ")
