"""How the checks of the database ask: read-only, in time, and leaving no trace in a pooler."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from psycopg.rows import namedtuple_row

from bridge.database.statements import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import psycopg

    from bridge.doctor.limits import Limits
    from bridge.settings import Settings


class Database:
    """One connection and what the checks need besides.

    `time_limit` (seconds) holds for each statement.
    """

    def __init__(
        self,
        conn: psycopg.Connection[Any],
        settings: Settings,
        limits: Limits,
        time_limit: float,
    ) -> None:
        self.conn = conn
        self.settings = settings
        self.limits = limits
        self.time_limit = time_limit
        self.schema = settings.database.schema_name
        conn.prepare_threshold = None  # a pooler may lend each statement another session

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Let the statements inside read one moment, and write nothing."""
        with self.conn.transaction():
            self.conn.execute("set transaction isolation level repeatable read, read only")
            self.conn.execute(
                "select pg_catalog.set_config('statement_timeout', %(limit)s, true), "
                # A table scanned by threads, or compiled, would gain nothing here.
                "pg_catalog.set_config('jit', 'off', true)",
                {"limit": f"{max(1, int(self.time_limit * 1000))}ms"},
            )
            yield

    def rows(self, name: str, parameters: Mapping[str, Any] | None = None) -> list[Any]:
        """Return the rows of `queries/<name>.sql`, their columns by name; within `transaction`."""
        with self.conn.cursor(row_factory=namedtuple_row) as cursor:
            return cursor.execute(load(name, self.schema), parameters or {}).fetchall()

    def row(self, name: str, parameters: Mapping[str, Any] | None = None) -> Any:
        """Return the only row."""
        (row,) = self.rows(name, parameters)
        return row
