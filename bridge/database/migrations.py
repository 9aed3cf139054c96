"""Brings a schema to a version and back, and checks that it is what this version needs."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from bridge.database import ledger
from bridge.database.inventory import expected_objects, find_drift
from bridge.database.ledger import LedgerEntry
from bridge.database.migration_failure import LOCK_TIMEOUT, error_line, migration_failed
from bridge.database.migration_script import check_schema_name, ledger_delete, ledger_insert, script
from bridge.database.migration_sets import OUTBOX, MigrationSet
from bridge.database.schema_files import Direction, Migration, read_migrations, read_schema_file
from bridge.database.sql_script import split_script
from bridge.database.statements import load
from bridge.database.template import advisory_class, render_script
from bridge.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from pathlib import Path


__all__ = ["Migration", "MigrationState", "Migrator", "check_schema_name", "script"]

State = Literal["applied", "pending", "changed", "unknown"]


@dataclass(frozen=True, slots=True)
class MigrationState:
    """One migration as files and ledger see it.

    `changed`: applied with another content; `unknown`: applied by a newer version of outbox-bridge.
    The last three are None while it is pending.
    """

    version: int
    name: str
    state: State
    applied_at: datetime | None
    applied_by: str | None
    tool_version: str | None


class Migrator:
    """The migrations of one set in one schema, over a connection that has no transaction open.

    Each file is a transaction of its own, taken under one advisory lock: several may start at
    once, and a migration that fails leaves nothing behind. Every method raises SchemaError, which
    names file, statement and line where there are such.
    """

    def __init__(
        self,
        conn: psycopg.Connection[Any],
        schema: str = "public",
        directory: Path | None = None,
        *,
        chosen: MigrationSet = OUTBOX,
    ) -> None:
        self._conn = conn
        self._schema = check_schema_name(schema)
        self._set = chosen
        self._known = read_migrations(directory, chosen)

    @property
    def latest(self) -> int:
        """Number of the newest migration that this version of outbox-bridge knows."""
        return len(self._known)

    def up(self, to: int | None = None) -> list[Migration]:
        """Apply what is pending, up to and including number `to`; return what was applied.

        Nothing happens where another process was faster, or the database is one version ahead.
        """
        target = self._check_target(self.latest if to is None else to)
        done: list[Migration] = []
        while (migration := self._up_one(target)) is not None:
            done.append(migration)
        return done

    def down(self, to: int) -> list[Migration]:
        """Take everything after number `to` away again, rows included; 0 leaves nothing behind."""
        target = self._check_target(to)
        done: list[Migration] = []
        while (migration := self._down_one(target)) is not None:
            done.append(migration)
        return done

    def status(self) -> list[MigrationState]:
        """Return every known and every applied migration, in order; changes nothing."""
        with self._transaction():
            applied = {entry.version: entry for entry in self._applied()}
        known = {migration.version: migration for migration in self._known}
        states = []
        for version in sorted(known.keys() | applied.keys()):
            entry, migration = applied.get(version), known.get(version)
            if entry is None:
                states.append(
                    MigrationState(version, known[version].name, "pending", None, None, None)
                )
                continue
            state: State = "applied"
            if migration is None:
                state = "unknown"
            elif entry.checksum != migration.checksum:
                state = "changed"
            states.append(
                MigrationState(
                    version,
                    entry.name,
                    state,
                    entry.applied_at,
                    entry.applied_by,
                    entry.tool_version,
                )
            )
        return states

    def check_compatible(self) -> int:
        """Return how many migrations the database is ahead: 0, or 1, which is accepted.

        Reads the ledger alone. Raises SchemaError where the schema is missing, behind, further
        ahead, or was migrated with other files.
        """
        with self._transaction():
            return self._check_compatible()

    def verify(self) -> None:
        """Check ledger and catalog: everything that the migrations made exists and is switched on.

        What a relay does at start; it never migrates. Raises SchemaError that lists each fault.
        """
        with self._transaction():
            ahead = self._check_compatible()
            oid = self._query(
                b"select n.oid from pg_catalog.pg_namespace as n where n.nspname = %(name)s",
                {"name": self._schema},
            )[0][0]
            actual = self._query(load("list_schema_objects", self._schema), {"schema_oid": oid})
        scripts = [render_script(migration.up, self._schema) for migration in self._known]
        scripts.insert(0, render_script(self._ledger_file(), self._schema))
        drift = find_drift(expected_objects(scripts), actual, compare_bodies=ahead == 0)
        if drift:
            raise SchemaError(
                f'schema "{self._schema}" was altered after it was migrated: {"; ".join(drift)}. '
                "Restore these objects (outbox-bridge migrate sql prints their statements)"
            )

    def _up_one(self, target: int) -> Migration | None:
        with self._transaction(write=True):
            pending = ledger.check_history(self._known, self._applied(), self._schema, self._set)
            if not pending or pending[0].version > target:
                return None
            migration = pending[0]
            if migration.version == 1:
                self._create_ledger()
            self._run_file(migration, "up")
            self._execute(ledger_insert(migration, self._schema, self._set))
            return migration

    def _down_one(self, target: int) -> Migration | None:
        with self._transaction(write=True):
            applied = self._applied()
            ledger.check_history(self._known, applied, self._schema, self._set)
            if len(applied) <= target:
                return None
            if len(applied) > self.latest:
                raise SchemaError(
                    f'schema "{self._schema}": migration {applied[-1].version:04d} '
                    f"({applied[-1].name}) is newer than this version of outbox-bridge, which "
                    f"has no down file for it; use outbox-bridge {applied[-1].tool_version}"
                )
            migration = self._known[len(applied) - 1]
            self._run_file(migration, "down")
            self._execute(ledger_delete(migration, self._schema, self._set))
            return migration

    def _create_ledger(self) -> None:
        if not self._find().has_schema:
            statement = sql.SQL("create schema {}").format(sql.Identifier(self._schema))
            try:
                self._execute(statement.as_string(None))
            except psycopg.errors.InsufficientPrivilege as error:
                raise SchemaError(
                    f'schema "{self._schema}" does not exist and this role may not create it; '
                    f'let an administrator run: create schema "{self._schema}" authorization <role>'
                ) from error
        for statement_ in split_script(render_script(self._ledger_file(), self._schema)):
            self._execute(statement_.text)

    def _ledger_file(self) -> str:
        return read_schema_file("ledger.sql", self._set)

    def _run_file(self, migration: Migration, direction: Direction) -> None:
        script = render_script(migration.text(direction), self._schema)
        for number, statement in enumerate(split_script(script), start=1):
            try:
                self._execute(statement.text)
            except psycopg.Error as error:
                raise migration_failed(
                    error,
                    f"{migration.file_name(direction)}, statement {number} "
                    f"(line {error_line(error, statement.text, statement.line)})",
                ) from error

    def _check_target(self, target: int) -> int:
        if not 0 <= target <= self.latest:
            raise SchemaError(
                f"there is no migration {target}; this version of outbox-bridge knows 1 to "
                f"{self.latest}, and 0 for none"
            )
        return target

    def _check_compatible(self) -> int:
        facts = self._find()
        if facts.has_schema and facts.has_ledger and not facts.may_read:
            raise SchemaError(
                f'this role may not read {self._set.ledger} in schema "{self._schema}"; grant '
                f"it a role of roles.sql ({self._set.roles})"
            )
        if not facts.has_ledger:
            reason = f'schema "{self._schema}" does not exist'
            if facts.has_schema:
                reason = f'schema "{self._schema}" has no {self._set.ledger}'
            if facts.has_main_table:
                reason += (
                    f", although it has a table {self._set.main_table} that outbox-bridge did "
                    "not create"
                )
            raise SchemaError(
                f"{reason} in database {self._conn.info.dbname}; "
                f"run: {self._set.command(self._schema)}"
            )
        return ledger.check_compatible(self._known, self._applied(), self._schema, self._set)

    def _applied(self) -> list[LedgerEntry]:
        if not self._find().has_ledger:
            return []
        rows = self._query(load(self._set.list_query, self._schema))
        return [LedgerEntry(*row) for row in rows]

    def _find(self) -> _SchemaFacts:
        wanted = {
            "schema_name": self._schema,
            "ledger": self._set.ledger,
            "main_table": self._set.main_table,
        }
        rows = self._query(load("find_schema", self._schema), wanted)
        return _SchemaFacts(*rows[0])

    def _query(
        self, statement: bytes, parameters: dict[str, Any] | None = None
    ) -> list[tuple[Any, ...]]:
        cursor = psycopg.Cursor(self._conn, row_factory=tuple_row)
        # Parameters even where there are none: only then does psycopg read %% as %.
        return cursor.execute(statement, parameters or {}, prepare=False).fetchall()

    def _execute(self, statement: str) -> None:
        psycopg.Cursor(self._conn).execute(statement.encode(), prepare=False)

    @contextmanager
    def _transaction(self, *, write: bool = False) -> Iterator[None]:
        """Open one transaction whose meaning does not depend on the session's settings."""
        if self._conn.info.transaction_status is not TransactionStatus.IDLE:
            raise SchemaError(
                "migrations need a connection of their own without an open transaction: each "
                "file is one transaction; commit or roll back first"
            )
        try:
            with self._conn.transaction():
                self._execute("set transaction isolation level read committed")
                # A search_path of ours: names and operators in the files mean PostgreSQL's own.
                self._execute("set local search_path = pg_catalog, pg_temp")
                if write:
                    self._execute("set transaction read write")
                    self._execute("set local standard_conforming_strings = on")
                    self._execute("set local statement_timeout = 0")
                    self._execute("set local lock_timeout = 0")
                    key = advisory_class("migrate", self._schema)
                    self._execute(f"select pg_advisory_xact_lock({key}, 0)")
                    # Behind a lock that we wait for, every writer of the table would queue up.
                    self._execute(f"set local lock_timeout = '{LOCK_TIMEOUT}'")
                yield
        except psycopg.Error as error:
            raise migration_failed(error, f'migrating schema "{self._schema}"') from error


@dataclass(frozen=True, slots=True)
class _SchemaFacts:
    """The row of `find_schema.sql`."""

    has_schema: bool
    has_ledger: bool
    has_main_table: bool
    may_read: bool
