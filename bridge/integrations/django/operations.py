"""One SQL migration of the outbox as a step of Django's history, ledger included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import router
from django.db.migrations.operations import RunSQL

from bridge.database.ledger import LedgerEntry, check_history
from bridge.database.migration_failure import LOCK_TIMEOUT
from bridge.database.migration_script import script
from bridge.database.migration_sets import OUTBOX
from bridge.database.schema_files import Direction, read_migrations
from bridge.database.statements import load
from bridge.database.template import advisory_class
from bridge.integrations.django import default_schema

if TYPE_CHECKING:
    from django.db.backends.base.schema import BaseDatabaseSchemaEditor
    from django.db.migrations.state import ProjectState


class MigrateOutbox(RunSQL):
    """Applies migration `number`, or takes it away again; both with its row of the ledger.

    What the ledger has already, or has not, is left as it is: a schema that `outbox-bridge
    migrate up` made is adopted. So Django's history and `outbox-bridge migrate status` agree.
    Raises SchemaError where the ledger holds other content. Does nothing on other databases than
    PostgreSQL, as Django's own operations for it.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        schema = default_schema()
        super().__init__(
            script(schema, number - 1, number), script(schema, number, number - 1, "down")
        )

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        """Return what a squashed migration writes down."""
        return (type(self).__qualname__, [self.number], {})

    def describe(self) -> str:
        """Return the name for people."""
        return f"Outbox schema {self.number:04d}"

    def database_forwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,  # noqa: ARG002 - the signature is Django's
        to_state: ProjectState,  # noqa: ARG002 - see above
    ) -> None:
        """Apply the migration, unless the ledger has it."""
        self._migrate("up", app_label, schema_editor)

    def database_backwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,  # noqa: ARG002 - the signature is Django's
        to_state: ProjectState,  # noqa: ARG002 - see above
    ) -> None:
        """Take the migration away, unless the ledger lacks it."""
        self._migrate("down", app_label, schema_editor)

    def _migrate(
        self, direction: Direction, app_label: str, editor: BaseDatabaseSchemaEditor
    ) -> None:
        connection = editor.connection
        if connection.vendor != "postgresql" or not router.allow_migrate(
            connection.alias, app_label, **self.hints
        ):
            return
        sql = self.sql if direction == "up" else self.reverse_sql
        if editor.collect_sql:  # `manage.py sqlmigrate`
            editor.execute(str(sql), params=None)
            return
        schema = default_schema()
        editor.execute(f"select pg_advisory_xact_lock({advisory_class('migrate', schema)}, 0)")
        # Behind a lock that we wait for, every writer of the table would queue up.
        editor.execute(f"set local lock_timeout = '{LOCK_TIMEOUT}'")
        is_applied = self._is_applied(editor, schema)
        if is_applied is (direction == "down"):
            editor.execute(str(sql), params=None)

    def _is_applied(self, editor: BaseDatabaseSchemaEditor, schema: str) -> bool:
        with editor.connection.cursor() as cursor:
            tables = {"ledger": OUTBOX.ledger, "main_table": OUTBOX.main_table}
            cursor.execute(load("find_schema", schema).decode(), {"schema_name": schema, **tables})
            if not cursor.fetchall()[0][1]:
                return False
            cursor.execute(load("list_migrations", schema).decode(), {})
            applied = [LedgerEntry(*row) for row in cursor.fetchall()]
        check_history(read_migrations(), applied, schema)
        return any(entry.version == self.number for entry in applied)
