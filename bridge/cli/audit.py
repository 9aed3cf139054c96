"""`outbox-bridge audit` and `outbox-bridge audit verify`."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bridge.cli import exit_codes
from bridge.cli.given import time_or_age_from
from bridge.cli.options import (
    ConfigOption,
    DatabaseUrlOption,
    JsonOption,
    SchemaOption,
    settings_from,
)
from bridge.cli.output import Output, moment
from bridge.lifecycle import exposure

if TYPE_CHECKING:
    from bridge.operations import AuditRecord

_PROGRESS_INTERVAL = 2.0

app = typer.Typer(
    invoke_without_command=True,
    help="""Show who did what, when and why; newest first.

Entries are written once: the database refuses to change or delete them, and a hash chain over them
tells of whoever did so all the same (`outbox-bridge audit verify`).

\b
Examples:
  outbox-bridge audit --id 4711
  outbox-bridge audit --action cancel --since 1d
  outbox-bridge audit verify
""",
)


@app.callback()
def audit(
    context: typer.Context,
    *,
    outbox_id: Annotated[
        int | None, typer.Option("--id", metavar="ID", help="Only entries of this row.")
    ] = None,
    action: Annotated[
        str | None,
        typer.Option(metavar="NAME", help='Only this action, such as retry, pause, "send now".'),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="NAME", help="Only this actor or database user."),
    ] = None,
    source: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only cli, console, sql or relay.")
    ] = None,
    request: Annotated[
        str | None, typer.Option(metavar="ID", help="Only what one command or click did.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="From then on: ISO 8601, or 2h ago as 2h."),
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Before; as --since.")] = None,
    before: Annotated[
        int | None, typer.Option(metavar="ID", help="Only entries with a smaller audit_id.")
    ] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=100_000, help="At most so many entries.")
    ] = 50,
    config: ConfigOption = None,
    database_url: DatabaseUrlOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """List entries, unless `verify` is called."""
    if context.invoked_subcommand is not None:
        return
    from bridge.database.reading import reading  # noqa: PLC0415 - after the options are checked
    from bridge.operations import list_audit  # noqa: PLC0415 - likewise

    settings = settings_from(config, database_url=database_url, schema=schema)
    name = settings.database.schema_name
    with reading(settings.database_url, name) as conn:
        entries = list_audit(
            conn,
            name,
            outbox_id=outbox_id,
            action=action,
            changed_by=by,
            source=source,
            request_id=request,
            changed_from=time_or_age_from(since, "--since"),
            changed_to=time_or_age_from(until, "--until"),
            before=before,
            limit=limit,
        )
    output = Output(as_json=json)
    is_full = len(entries) == limit
    if json:
        page = {"before": entries[-1].audit_id} if is_full else None
        output.json({"entries": [asdict(entry) for entry in entries], "next": page})
        return
    if not entries:
        output.line("No entry.")
        return
    output.table(
        ["entry", "when", "action", "row", "by", "from", "before", "after", "reason"],
        [
            [
                entry.audit_id,
                moment(entry.changed_at),
                entry.action_name,
                entry.outbox_id,
                _who(entry),
                entry.source,
                _state(entry.before_state, is_before=True),
                _state(entry.after_state),
                entry.reason,
            ]
            for entry in entries
        ],
    )
    if is_full:
        output.note(f"{limit} entries listed; go on with --before {entries[-1].audit_id}")


@app.command()
def verify(
    *,
    head: Annotated[
        str | None,
        typer.Option(
            metavar="POSITION:HASH", help="A head noted earlier; the chain must pass through it."
        ),
    ] = None,
    config: ConfigOption = None,
    database_url: DatabaseUrlOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """Follow the audit's hash chain and tell whether anybody changed it; returns 1 if so.

    Prints the head: position and hash of the last entry. Note it now and then where the owner of
    the database cannot write, and give it back with --head: a chain that was made anew from some
    place on has another one.

    Examples:
      outbox-bridge audit verify
      outbox-bridge audit verify --head 4711:9f86d081884c7d65…
      outbox-bridge audit verify --json | jq -r .head
    """
    from bridge.database.reading import reading  # noqa: PLC0415 - after the options are checked
    from bridge.operations import Head, verify_audit  # noqa: PLC0415 - likewise

    settings = settings_from(config, database_url=database_url, schema=schema)
    name = settings.database.schema_name
    known = None if head is None else Head.parse(head)
    output = Output(as_json=json)
    progress = _Progress(output)
    with reading(settings.database_url, name) as conn:
        report = verify_audit(conn, name, known_head=known, on_progress=progress.tell)
    if json:
        output.json(
            {
                "holds": report.holds,
                "entries": report.entries,
                "first_position": report.first_position,
                "head": str(report.head),
                "passed_known_head": report.passed_known_head if known is not None else None,
                "flaw_count": report.flaw_count,
                "flaws": [flaw._asdict() for flaw in report.flaws],
            }
        )
    else:
        output.line(
            f"{report.entries} entries, the chain {'holds' if report.holds else 'does not hold'}"
        )
        output.line(f"head {report.head}")
        if report.flaws:
            output.line()
            output.table(
                ["position", "entry", "what"],
                [[flaw.position, flaw.audit_id, flaw.what] for flaw in report.flaws],
            )
        if known is not None and report.holds and not report.passed_known_head:
            output.note(f"the noted head {known.position} was pruned and could not be compared")
        if report.flaw_count > len(report.flaws):
            output.note(f"{report.flaw_count - len(report.flaws)} more are not shown")
    if not report.holds:
        raise typer.Exit(exit_codes.FAILURE)


class _Progress:
    """Tells now and then how many entries were checked."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._next = time.monotonic() + _PROGRESS_INTERVAL

    def tell(self, entries: int) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _PROGRESS_INTERVAL
            self._output.note(f"{entries} entries checked so far")


def _who(entry: AuditRecord) -> str:
    if entry.database_user is None or entry.database_user == entry.changed_by:
        return entry.changed_by
    return f"{entry.changed_by} ({entry.database_user})"


def _state(state: dict[str, Any] | None, *, is_before: bool = False) -> str | None:
    """Show of a row its status, before also its exposure; of a switch how it stands."""
    if state is None:
        return None
    if "status" in state:
        status = str(state["status"])
        if not is_before or "claim_count" not in state:
            return status
        return f"{status}, {exposure(status, state['claim_count'])}"
    shown = [f"{name}={value}" for name, value in sorted(state.items()) if value not in (None, "")]
    return " ".join(shown)
