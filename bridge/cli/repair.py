"""`outbox-bridge repair`: put rows and side tables in step again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bridge.cli.options import (
    ConfigOption,
    DatabaseUrlOption,
    JsonOption,
    SchemaOption,
    settings_from,
)
from bridge.cli.output import Cell, Output

if TYPE_CHECKING:
    from bridge.relay.reconciler import Repair

_LOCK_TIMEOUT = 10.0
"""Seconds to wait for somebody's open transaction on a row that is to be put right."""

_PROGRESS_INTERVAL = 2.0


def repair(
    *,
    config: ConfigOption = None,
    database_url: DatabaseUrlOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """Find what triggers did not see, and put it right: after a restore, or with triggers off.

    Queues PENDING rows that have no queue entry, gives PROCESSING rows that no claim names back
    (uncharged), lets ordered rows come back that wait although nothing holds their key, counts SENT
    and CANCELLED rows and lists FAILED rows anew. Reads the whole table;
    writers and relays go on meanwhile, and a second run finds nothing.

    Examples:
      outbox-bridge repair
      outbox-bridge repair --json
    """
    # Only after the options are checked: `--help` must not wait for them.
    from bridge.database.migrations import Migrator  # noqa: PLC0415 - see above
    from bridge.database.reading import translated  # noqa: PLC0415 - see above
    from bridge.database.session import Session  # noqa: PLC0415 - see above
    from bridge.relay.reconciler import Reconciler  # noqa: PLC0415 - see above

    settings = settings_from(config, database_url=database_url, schema=schema)
    name = settings.database.schema_name
    output = Output(as_json=json)
    session = Session(
        settings.database_url,
        schema=name,
        stage="repair",
        relay_name="outbox-bridge",
        lock_timeout=_LOCK_TIMEOUT,
    )
    with translated(name):
        session.open()
        try:
            Migrator(session.connection, name).check_compatible()
            reconciler = Reconciler(session)
            found = reconciler.reconcile(on_step=_Progress(output).tell)
            output.note("counting SENT, CANCELLED and FAILED rows")
            recounted = reconciler.recount()
        finally:
            session.close()
    if json:
        output.json(_result(found, recounted))
        return
    output.pairs(_result(found, recounted), title="put right")


def _result(found: Repair, recounted: int) -> dict[str, Cell]:
    return {
        "queued": found.queued,
        "released": found.released,
        "adopted": found.adopted,
        "recounted": recounted,
    }


class _Progress:
    """Tells now and then how far the walk has come."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._next = time.monotonic() + _PROGRESS_INTERVAL

    def tell(self, done_id: int, last_id: int) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _PROGRESS_INTERVAL
            self._output.note(f"looked at rows up to id {done_id} of {last_id}")
