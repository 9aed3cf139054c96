"""`views`: how long each monitoring view takes beside many SENT rows, and beside a backlog."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

from psycopg import sql

from bridge.database.schema_files import schema_directory
from tests.bench import outbox
from tests.bench.figures import Findings, at_most

if TYPE_CHECKING:
    from pathlib import Path

    import psycopg

    from tests.bench.lab import Lab
    from tests.bench.sizes import Sizes

_REPEATS = 7
_GOAL_MS = 50
_COUNTING = ("outbox_by_status", "outbox_by_destination", "outbox_oldest_unsent")

# What a busy outbox has beside the SENT rows: rows in flight, later, failed, held, a day's counts.
_BESIDE = """
    insert into app_outbox (message_key, event_type, destination, payload_json, next_run_at)
    select 'open-' || g, 'order.created', 'orders-' || g % 10, '{}',
        now() + (g % 2) * interval '1 hour'
    from generate_series(1, 1000) as g;
    update app_outbox set retry_count = 4, last_error_code = 'X' where message_key ~ '^open-.*7$';
    update app_outbox set status = 'FAILED', last_error_code = 'X' where message_key ~ '^open-.*9$';
    with taken as (
        update app_outbox
        set status = 'PROCESSING', claim_id = '00000000-0000-4000-8000-000000000001'
        where message_key ~ '^open-.*2$' returning outbox_id
    )
    insert into app_outbox_claim (claim_id, relay_id, outbox_ids)
    select '00000000-0000-4000-8000-000000000001', 1, array_agg(outbox_id) from taken;
    delete from app_outbox_queue where outbox_id in (
        select unnest(outbox_ids) from app_outbox_claim
    );
    insert into app_outbox_hold
        (destination, ordering_key, outbox_id, key_hash, lane, boundary, error_code)
    select destination, 'key-' || outbox_id, outbox_id, 1, 1, outbox_id, 'X'
    from app_outbox_failed;
    insert into app_outbox_counter (destination, status, delta, counted_at)
    select 'orders-' || d, 'SENT', 100, date_trunc('minute', now()) - m * interval '1 minute'
    from generate_series(1, 10) as d, generate_series(1, 1440) as m;
    insert into app_outbox_relay (relay_name, host, pid, version, lease_seconds, failing)
    select 'relay-' || g, 'h', g, '1', 120, '{"orders-1": "no leader"}'
    from generate_series(1, 4) as g;
"""


def run(lab: Lab, sizes: Sizes, peer: Path | None) -> Findings:
    """Load the rows once, then read each view several times."""
    server = lab.server()
    found = Findings("views")
    with server.database() as database:
        outbox.migrate(server, database)
        with server.connect(database) as connection:
            lab.progress(f"views: loading {sizes.view_rows:,} SENT rows")
            outbox.add_sent(connection, "orders-1", sizes.view_rows)
            connection.execute(_BESIDE)
            outbox.settle_down(connection)
            outbox.checkpoint(connection)
            lab.progress("views: reading")
            for view in _views():
                found.add(view, _times(connection, view), "ms", at_most(_GOAL_MS))
            lab.progress(f"views: beside {sizes.other_rows:,} unsent rows")
            outbox.fill(connection, "orders-2", sizes.other_rows)
            connection.execute("analyze")
            for view in _COUNTING:
                found.add(f"{view}, {sizes.other_rows:,} unsent", _times(connection, view), "ms")
    return found


def _views() -> list[str]:
    files = sorted((schema_directory() / "migrations").glob("*.up.sql"))
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    return re.findall(r'^create view :"schema"\.(\w+)', text, re.MULTILINE)


def _times(connection: psycopg.Connection[Any], view: str) -> list[float]:
    """Return how long it takes until a client has all rows, in ms; the first time warms up."""
    query = sql.SQL("select * from {}").format(sql.Identifier(view))
    times = []
    for _ in range(_REPEATS + 1):
        started = time.perf_counter()
        connection.execute(query).fetchall()
        times.append((time.perf_counter() - started) * 1000)
    return times[1:]
