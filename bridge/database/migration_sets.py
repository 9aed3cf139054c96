"""The sets of migrations: the outbox beside the writers, the inbox beside a consumer (pure).

Each has a folder, a ledger and roles of its own; both may live in one schema.
"""

from __future__ import annotations

from dataclasses import dataclass

from bridge.errors import SchemaError


@dataclass(frozen=True, slots=True)
class MigrationSet:
    """One set: what it is called, where it stands, and its tables.

    `folder` is below `schemas/postgres`, empty for that folder itself; `roles` are named to people
    who lack rights; `list_query` reads the ledger.
    """

    name: str
    folder: str
    ledger: str
    main_table: str
    list_query: str
    roles: str

    def command(self, schema: str) -> str:
        """Return the command line that brings a schema up to date, for messages."""
        chosen = "" if self is OUTBOX else f" --set {self.name}"
        place = "" if schema == "public" else f" --schema '{schema}'"
        return f"outbox-bridge migrate up{chosen}{place}"


OUTBOX = MigrationSet(
    name="outbox",
    folder="",
    ledger="app_outbox_migration",
    main_table="app_outbox",
    list_query="list_migrations",
    roles="outbox_relay, outbox_operator, outbox_reader",
)
INBOX = MigrationSet(
    name="inbox",
    folder="inbox",
    ledger="app_inbox_migration",
    main_table="app_inbox",
    list_query="list_inbox_migrations",
    roles="inbox_consumer, inbox_reader",
)
SETS = {chosen.name: chosen for chosen in (OUTBOX, INBOX)}


def migration_set(name: str) -> MigrationSet:
    """Return the set of this name. Raises SchemaError where there is none."""
    try:
        return SETS[name]
    except KeyError:
        raise SchemaError(
            f"there is no set of migrations named {name!r}; there are {' and '.join(SETS)}"
        ) from None
