"""`outbox-bridge prune`: delete what retention does not keep."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from bridge.cli.options import (
    ConfigOption,
    DatabaseUrlOption,
    JsonOption,
    SchemaOption,
    settings_from,
)
from bridge.cli.output import Output

if TYPE_CHECKING:
    from bridge.relay.pruner import Pruned

_LOCK_TIMEOUT = 1.0
_PROGRESS_INTERVAL = 2.0


def prune(
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count what would be deleted.")
    ] = False,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            metavar="TIME",
            help="SENT and CANCELLED longer ago than this, such as 7d (else retention.sent).",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, metavar="N", help="Delete at most N rows.")
    ] = None,
    config: ConfigOption = None,
    database_url: DatabaseUrlOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """Delete rows that are done with and older than the settings under [retention] keep them.

    Relays do the same by themselves, a minute apart; this is for cron, or where no relay runs for
    long. Rows go in small steps with pauses between, locked ones are left, and archived first
    where retention.archive asks for it. A message key whose row is gone is new again.

    Examples:
      outbox-bridge prune --dry-run
      outbox-bridge prune --older-than 30d --limit 100000
    """
    # Only after the options are checked: `--help` must not wait for them.
    from bridge.database.migrations import Migrator  # noqa: PLC0415 - see above
    from bridge.database.reading import translated  # noqa: PLC0415 - see above
    from bridge.database.session import Session  # noqa: PLC0415 - see above
    from bridge.relay.pruner import Pruner  # noqa: PLC0415 - see above
    from bridge.settings import is_color_wanted  # noqa: PLC0415 - see above
    from bridge.telemetry.logging import configure_logging  # noqa: PLC0415 - see above

    settings = settings_from(
        config,
        database_url=database_url,
        schema=schema,
        overrides={"retention": {"sent": older_than}},
    )
    configure_logging(settings.log.level, settings.log.format, colors=is_color_wanted())
    name = settings.database.schema_name
    output = Output(as_json=json)
    session = Session(
        settings.database_url,
        schema=name,
        stage="prune",
        relay_name="outbox-bridge",
        lock_timeout=_LOCK_TIMEOUT,
    )
    with translated(name):
        session.open()
        try:
            Migrator(session.connection, name).check_compatible()
            pruner = Pruner(session, settings.retention)
            pruned = pruner.run(dry_run=dry_run, limit=limit, on_step=_Progress(output).tell)
            audit = 0 if dry_run else pruner.prune_audit()
        finally:
            session.close()
    if json:
        output.json({"dry_run": dry_run, **asdict(pruned), "audit": audit})
        return
    output.pairs(
        {
            "SENT": pruned.sent,
            "CANCELLED": pruned.cancelled,
            "FAILED": pruned.failed,
            **({} if dry_run else {"audit entries": audit}),
        },
        title="would be deleted" if dry_run else "deleted",
    )


class _Progress:
    """Tells now and then how many rows are gone."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._next = time.monotonic() + _PROGRESS_INTERVAL

    def tell(self, so_far: Pruned) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _PROGRESS_INTERVAL
            self._output.note(f"{so_far.rows} rows so far")
