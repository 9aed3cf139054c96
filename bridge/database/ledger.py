"""Which migrations a schema has, and whether this version may work with it (pure).

The rule: a relay runs beside its own schema version and beside the next one. Upgrade the schema
first, the relays after it, one version at a time. Hence every migration leaves what the version
before it uses as it is, and what falls out of use is dropped one version later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bridge.database.migration_sets import OUTBOX, MigrationSet
from bridge.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from bridge.database.schema_files import Migration

MAX_VERSIONS_AHEAD = 1
"""How many migrations newer than its own a program accepts in the database."""


class LedgerEntry(NamedTuple):
    """One row of a set's ledger, such as `app_outbox_migration`."""

    version: int
    name: str
    checksum: str
    applied_at: datetime
    applied_by: str
    tool_version: str


def check_history(
    known: Sequence[Migration],
    applied: Sequence[LedgerEntry],
    schema: str,
    chosen: MigrationSet = OUTBOX,
) -> tuple[Migration, ...]:
    """Return the migrations not applied yet; raise SchemaError where the history is not ours.

    Refused: a file that changed after it was applied, a gap, and a database more than
    `MAX_VERSIONS_AHEAD` migrations ahead.
    """
    by_version = {migration.version: migration for migration in known}
    for position, entry in enumerate(applied, start=1):
        if entry.version != position:
            raise SchemaError(
                f'schema "{schema}" has migration {entry.version:04d} but not {position:04d}; '
                f"restore the row of {chosen.ledger} or drop the schema and migrate anew"
            )
        migration = by_version.get(entry.version)
        if migration is None:
            continue
        if entry.checksum.strip() != migration.checksum:
            raise SchemaError(
                f'schema "{schema}": {migration.file_name("up")} was applied at '
                f"{entry.applied_at:%Y-%m-%d %H:%M} by outbox-bridge {entry.tool_version} with "
                f"other content (checksum {entry.checksum[:12]}, here {migration.checksum[:12]}); "
                "install the version that applied it, and make changes in a new migration"
            )
    ahead = len(applied) - len(known)
    if ahead > MAX_VERSIONS_AHEAD:
        raise SchemaError(
            f'schema "{schema}" is at migration {applied[-1].version:04d} ({applied[-1].name}), '
            f"{ahead} ahead of this version of outbox-bridge, which knows {len(known):04d} and "
            f"works beside {len(known) + MAX_VERSIONS_AHEAD:04d} at most; install outbox-bridge "
            f"{applied[-1].tool_version} or newer"
        )
    return tuple(known[len(applied) :])


def check_compatible(
    known: Sequence[Migration],
    applied: Sequence[LedgerEntry],
    schema: str,
    chosen: MigrationSet = OUTBOX,
) -> int:
    """Return how many migrations the database is ahead (0 or 1); raise SchemaError otherwise."""
    pending = check_history(known, applied, schema, chosen)
    if pending:
        at = f"is at migration {applied[-1].version:04d}" if applied else "has no migrations"
        raise SchemaError(
            f'schema "{schema}" {at}, this version of outbox-bridge needs {len(known):04d} '
            f"({pending[-1].name}); run: {chosen.command(schema)}"
        )
    return len(applied) - len(known)


def migrate_command(schema: str) -> str:
    """Return the command line that brings the outbox up to date, for messages."""
    return OUTBOX.command(schema)
