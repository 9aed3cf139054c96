"""The outbox table of a measurement: filled, looked at."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bridge.database.migrations import Migrator
from tests.bench.figures import BenchError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    from tests.bench.lab import Server

PAYLOAD_BYTES = 500
_ROWS_A_TRANSACTION = 1_000
_ROWS_OF_SET_UP = 100_000
_STATISTICS_SECONDS = 10.0
_RELAY_SECONDS = 30.0

# An order of 500 bytes that compresses about as well as JSON of a business does.
PAYLOAD = f"""
rpad(
    '{{"order_id":"' || lpad(g::text, 12, '0') || '","customer_id":"' || md5('c' || g)
    || '","lines":['
    || '{{"sku":"' || md5('s' || g) || '","quantity":2,"unit_price":"19.90"}},'
    || '{{"sku":"' || md5('t' || g) || '","quantity":1,"unit_price":"4.50"}},'
    || '{{"sku":"' || md5('u' || g) || '","quantity":7,"unit_price":"120.00"}}'
    || '],"currency":"EUR","note":"',
    {PAYLOAD_BYTES - 2}, 'delivery as agreed by phone, to the back door '
) || '"}}'
"""

_COLUMNS = "message_key, event_type, destination, payload_json"
_VALUES = f"'order-' || lpad(g::text, 12, '0'), 'order.created', %(destination)s, ({PAYLOAD})::json"


def migrate(server: Server, database: str) -> None:
    """Bring the database to the newest schema."""
    with server.connect(database) as connection:
        Migrator(connection).up()


def fill(connection: psycopg.Connection[Any], destination: str, rows: int, first: int = 1) -> None:
    """Insert rows that are due, 1,000 to a transaction, as plain SQL does."""
    for start in range(first, first + rows, _ROWS_A_TRANSACTION):
        end = min(start + _ROWS_A_TRANSACTION, first + rows) - 1
        connection.execute(
            f"insert into app_outbox ({_COLUMNS}) select {_VALUES} "
            "from generate_series(%(start)s::bigint, %(end)s::bigint) as g",
            {"destination": destination, "start": start, "end": end},
        )


def fill_traced(
    connection: psycopg.Connection[Any], destination: str, rows: int, sampled_of_100: int
) -> None:
    """Insert rows that are due, each with a trace context; so many of 100 are sampled."""
    for start in range(1, rows + 1, _ROWS_A_TRANSACTION):
        connection.execute(
            f"insert into app_outbox ({_COLUMNS}, headers) select {_VALUES}, "
            "jsonb_build_object('traceparent', '00-' || md5(g::text) || '-' "
            "|| left(md5('span' || g), 16) "
            "|| case when g %% 100 < %(sampled)s then '-01' else '-00' end) "
            "from generate_series(%(start)s::bigint, %(end)s::bigint) as g",
            {
                "destination": destination,
                "start": start,
                "end": min(start + _ROWS_A_TRANSACTION, rows + 1) - 1,
                "sampled": sampled_of_100,
            },
        )


def settle_down(connection: psycopg.Connection[Any]) -> None:
    """Do what autovacuum does within its minute, so that it does not strike while measuring."""
    connection.execute("vacuum (analyze)")


def checkpoint(connection: psycopg.Connection[Any]) -> None:
    """Write a checkpoint now.

    Before the fill: pages that are first written after it are logged in full, which belongs to the
    fill and not to claim and settle.
    """
    connection.execute("checkpoint")


def add_sent(connection: psycopg.Connection[Any], destination: str, rows: int) -> None:
    """Insert rows that were sent long ago."""
    with _without_triggers(connection):
        for start in range(-rows, 0, _ROWS_OF_SET_UP):
            connection.execute(
                f"insert into app_outbox ({_COLUMNS}, status, sent_partition, sent_offset, "
                f"claim_count, sent_at) select {_VALUES}, 'SENT', 0, -g, 1, now() "
                "from generate_series(%(start)s::bigint, %(end)s::bigint) as g",
                {
                    "destination": destination,
                    "start": start,
                    "end": min(start + _ROWS_OF_SET_UP, 0) - 1,
                },
            )
        connection.execute(
            "insert into app_outbox_counter (destination, status, delta) values (%s, 'SENT', %s)",
            [destination, rows],
        )


def add_tomorrow(connection: psycopg.Connection[Any], destination: str, rows: int) -> None:
    """Insert rows of the same destination that are due tomorrow."""
    connection.execute(
        f"insert into app_outbox ({_COLUMNS}, next_run_at) "
        f"select {_VALUES}, now() + interval '1 day' "
        "from generate_series(%(start)s::bigint, -1) as g",
        {"destination": destination, "start": -rows},
    )


def add_paused(connection: psycopg.Connection[Any], destination: str, rows: int) -> None:
    """Insert rows of a destination that is not being sent: an operator has paused it."""
    connection.execute(
        "insert into app_outbox_control (destination, paused, reason) values (%s, true, 'bench')",
        [destination],
    )
    for start in range(-rows, 0, _ROWS_OF_SET_UP):
        connection.execute(
            f"insert into app_outbox ({_COLUMNS}) select {_VALUES} "
            "from generate_series(%(start)s::bigint, %(end)s::bigint) as g",
            {
                "destination": destination,
                "start": start,
                "end": min(start + _ROWS_OF_SET_UP, 0) - 1,
            },
        )


def fill_keys(connection: psycopg.Connection[Any], destination: str, rows: int, keys: int) -> None:
    """Insert rows that are due, 1,000 to a transaction, which share `keys` ordering keys."""
    for start in range(1, rows + 1, _ROWS_A_TRANSACTION):
        connection.execute(
            f"insert into app_outbox ({_COLUMNS}, ordering_key) "
            f"select {_VALUES}, 'key-' || g %% %(keys)s "
            "from generate_series(%(start)s::bigint, %(end)s::bigint) as g",
            {
                "destination": destination,
                "start": start,
                "end": min(start + _ROWS_A_TRANSACTION, rows + 1) - 1,
                "keys": keys,
            },
        )


def fill_large(connection: psycopg.Connection[Any], destination: str, rows: int, size: int) -> None:
    """Insert rows that are due, each with a JSON text of `size` bytes that compresses well."""
    connection.execute(
        "insert into app_outbox (message_key, event_type, destination, payload_json) "
        "select 'large-' || g, 'order.created', %s, "
        "('\"' || rpad('', %s - 2, 'delivery as agreed ' || g || ' ') || '\"')::json "
        "from generate_series(1, %s) as g",
        [destination, size, rows],
    )


def add_held(connection: psycopg.Connection[Any], destination: str, rows: int) -> None:
    """Insert a FAILED row with ordering key and `rows` more of that key, which wait behind it."""
    with _without_triggers(connection):
        connection.execute(
            f"insert into app_outbox ({_COLUMNS}, ordering_key, status, last_error_code) "
            f"select {_VALUES}, 'held', "
            "case when g = %(start)s then 'FAILED' else 'PENDING' end, 'X' "
            "from generate_series(%(start)s::bigint, -1) as g",
            {"destination": destination, "start": -rows - 1},
        )
        connection.execute(
            "insert into app_outbox_queue "
            "(outbox_id, destination, next_run_at, lane, key_hash, parked) "
            "select outbox_id, destination, next_run_at, "
            "hashtext('held') & 63, hashtext('held'), 'k' "
            "from app_outbox where ordering_key = 'held' and status = 'PENDING'"
        )
        connection.execute(
            "insert into app_outbox_failed (outbox_id, destination, event_type, error_code) "
            "select outbox_id, destination, event_type, 'X' from app_outbox where status = 'FAILED'"
        )
        connection.execute(
            "insert into app_outbox_hold "
            "(destination, ordering_key, outbox_id, key_hash, lane, boundary, error_code) "
            "select destination, 'held', outbox_id, hashtext('held'), hashtext('held') & 63, "
            "outbox_id, 'X' from app_outbox where status = 'FAILED'"
        )


def add_dead_entries(connection: psycopg.Connection[Any], destination: str, entries: int) -> None:
    """Insert queue entries and delete them: what a drain leaves while a snapshot is held open."""
    connection.execute(
        "insert into app_outbox_queue (outbox_id, destination, next_run_at) "
        "select -g, %s, now() - g * interval '1 millisecond' from generate_series(1, %s) as g",
        [destination, entries],
    )
    connection.execute("delete from app_outbox_queue where outbox_id < 0")


@contextmanager
def _without_triggers(connection: psycopg.Connection[Any]) -> Iterator[None]:
    connection.execute("set session_replication_role = replica")
    yield
    connection.execute("reset session_replication_role")


def hold_snapshot(connection: psycopg.Connection[Any]) -> None:
    """Leave a transaction open that still sees everything as it is now."""
    connection.execute("begin isolation level repeatable read")
    connection.execute("select from app_outbox limit 1")


def await_relay(server: Server, database: str) -> None:
    """Wait until a relay has registered itself; raises BenchError where none does."""
    deadline = time.monotonic() + _RELAY_SECONDS
    with server.connect(database) as connection:
        while not _value(connection, "select count(*) from app_outbox_relay"):
            if time.monotonic() > deadline:
                raise BenchError(f"no relay registered itself within {_RELAY_SECONDS:.0f} s")
            time.sleep(0.05)


@dataclass(frozen=True)
class Wal:
    """Bytes of WAL between two positions; `full_pages` is the part that images of pages take."""

    total: int
    full_pages: int


def wal_position(connection: psycopg.Connection[Any]) -> str:
    """Return the end of the WAL that has been inserted."""
    return str(_value(connection, "select pg_current_wal_insert_lsn()"))


def wal_since(connection: psycopg.Connection[Any], start: str) -> Wal:
    """Return what was logged since a position."""
    end = wal_position(connection)
    total = int(_value(connection, "select %s::pg_lsn - %s::pg_lsn", end, start))
    connection.execute("create extension if not exists pg_walinspect")
    # Reads what is on disk only, and the walwriter may be a moment behind.
    connection.execute("select pg_switch_wal()")
    images = _value(
        connection, "select sum(fpi_size) from pg_get_wal_stats(%s, %s, false)", start, end
    )
    return Wal(total, int(images or 0))


@dataclass(frozen=True)
class Updates:
    """Updates of app_outbox that the database has counted, and those of them that were HOT."""

    all: int
    hot: int


def updates(connection: psycopg.Connection[Any]) -> Updates:
    """Return what is counted now; sessions report with some delay."""
    row = connection.execute(
        "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'app_outbox'"
    ).fetchone()
    assert row is not None
    return Updates(*row)


def hot_share(connection: psycopg.Connection[Any], before: Updates, expected: int) -> float:
    """Return which share of the updates since `before` was HOT, once `expected` are counted."""
    deadline = time.monotonic() + _STATISTICS_SECONDS
    while (found := updates(connection)).all - before.all < expected:
        if time.monotonic() > deadline:
            raise BenchError(
                f"PostgreSQL counted {found.all - before.all} updates of app_outbox, not {expected}"
            )
        time.sleep(0.1)
    return (found.hot - before.hot) / (found.all - before.all)


def sent(connection: psycopg.Connection[Any], destination: str) -> int:
    """Return how many rows of a destination are SENT."""
    query = "select count(*) from app_outbox where destination = %s and status = 'SENT'"
    return int(_value(connection, query, destination))


def unsent(connection: psycopg.Connection[Any], destination: str) -> int:
    """Return how many due rows of a destination are not SENT, those of `add_held` left out."""
    return int(
        _value(
            connection,
            "select count(*) from app_outbox "
            "where destination = %s and status <> 'SENT' and next_run_at <= now() "
            "and ordering_key is distinct from 'held'",
            destination,
        )
    )


def _value(connection: psycopg.Connection[Any], query: str, *parameters: object) -> Any:
    row = connection.execute(query, parameters).fetchone()
    return row[0] if row else None
