"""`console`: how long each page takes beside millions of SENT rows, from request to last byte."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from starlette.testclient import TestClient

from bridge.console.app import create_app
from bridge.settings import load_settings
from tests.bench import outbox
from tests.bench.figures import BenchError, Findings, at_most

if TYPE_CHECKING:
    from pathlib import Path

    import psycopg

    from tests.bench.lab import Lab
    from tests.bench.sizes import Sizes

_GOAL_MS = 300
_ROUNDS = 7
_CHUNK = 100_000
_SECONDS_A_ROW = 0.05
_WAITING = 8_000
_FAILED = 5_000
_HELD = 200
_LONG_BACKLOG = 300_000

_LOAD = """
    insert into app_outbox (message_key, event_type, destination, ordering_key, payload_json,
        status, claim_count, sent_partition, sent_offset, created_at, sent_at, headers)
    select 'order-' || g, (array['order.created', 'order.paid', 'order.shipped'])[1 + g %% 3],
        (array['orders', 'mails', 'inventory', 'search'])[1 + g %% 4], 'order-' || g / 3,
        json_build_object('order', g, 'customer', md5(g::text)), 'SENT', 1, g %% 6, g / 6,
        now() - (%(rows)s - g) * %(step)s * interval '1 second',
        now() - (%(rows)s - g) * %(step)s * interval '1 second',
        jsonb_build_object('traceparent', '00-' || md5(g::text) || '-00f067aa0ba902b7-01')
    from generate_series(%(start)s::bigint, %(end)s::bigint) as g
"""


def run(lab: Lab, sizes: Sizes, peer: Path | None) -> Findings:
    """Load once, then ask for each page several times; the first answers count as well."""
    del peer
    found = Findings("console")
    server = lab.server()
    with server.database() as database:
        outbox.migrate(server, database)
        with server.connect(database) as connection:
            lab.progress(f"console: loading {sizes.console_rows:,} SENT rows")
            last = _load(connection, sizes.console_rows)
            outbox.settle_down(connection)
            settings = load_settings(None, {"database": {"url": server.url(database)}})
            with TestClient(create_app(settings), base_url="http://127.0.0.1") as client:
                for name, path in _pages(last, sizes.console_rows):
                    lab.progress(f"console: {name}")
                    found.add(name, _measure(client, path), "ms", at_most(_GOAL_MS))
                lab.progress(f"console: a backlog of {_LONG_BACKLOG:,} rows")
                outbox.add_paused(connection, "stopped", _LONG_BACKLOG)
                for name, path in (
                    ("overview, long backlog", "/"),
                    ("messages PENDING, long backlog", "/messages?status=PENDING"),
                    ("destinations, long backlog", "/destinations"),
                ):
                    found.add(name, _measure(client, path), "ms", at_most(_GOAL_MS))
    found.runs.append({"rows": sizes.console_rows, "rounds": _ROUNDS})
    return found


def _load(connection: psycopg.Connection[Any], rows: int) -> int:
    """Fill the tables as relays leave them; return the id of a failed row."""
    connection.execute("set session_replication_role = replica")
    for start in range(1, rows + 1, _CHUNK):
        values = {"rows": rows, "step": _SECONDS_A_ROW, "start": start}
        connection.execute(_LOAD, {**values, "end": min(start + _CHUNK - 1, rows)})
    connection.execute("set session_replication_role = origin")
    connection.execute(
        "insert into app_outbox_counter (destination, status, delta, counted_at) "
        "select d, 'SENT', 1200, date_trunc('minute', now()) - n * interval '1 minute' "
        "from generate_series(1, 1440) as n, "
        "unnest(array['orders', 'mails', 'inventory', 'search']) as d"
    )
    outbox.fill(connection, "orders", _WAITING, first=10 * rows)
    connection.execute(
        "insert into app_outbox (message_key, event_type, destination, ordering_key) "
        "select 'failed-' || g, 'order.paid', 'orders', 'failed-' || g "
        "from generate_series(1, %s) as g",
        [_FAILED],
    )
    connection.execute(
        "update app_outbox set status = 'FAILED', last_error_code = 'MESSAGE_TOO_LARGE', "
        "last_error_msg = 'too large' where outbox_id > %s",
        [rows + _WAITING],
    )
    connection.execute(
        "insert into app_outbox_hold (destination, ordering_key, outbox_id, key_hash, lane, "
        "boundary) select destination, ordering_key, outbox_id, hashtext(ordering_key), "
        "hashtext(ordering_key) & 63, outbox_id from app_outbox where outbox_id > %s limit %s",
        [rows + _WAITING, _HELD],
    )
    row = connection.execute("select max(outbox_id) from app_outbox").fetchone()
    return int(row[0]) if row else 0


def _pages(last: int, rows: int) -> list[tuple[str, str]]:
    middle = rows // 2
    return [
        ("overview", "/"),
        ("messages", "/messages"),
        ("messages, far back", f"/messages?before={middle}"),
        ("messages PENDING", "/messages?status=PENDING"),
        ("messages FAILED of a destination", "/messages?status=FAILED&destination=orders"),
        ("messages SENT of a destination", "/messages?status=SENT&destination=mails"),
        ("messages of a type", "/messages?type=order.shipped"),
        (
            "messages of a type, SENT, far back",
            f"/messages?type=order.paid&status=SENT&to={_hours(rows)}",
        ),
        ("messages by time", f"/messages?from={_hours(rows)}&to=1h"),
        ("messages by trace id", "/messages?trace=4bf92f3577b34da6a3ce929d0e0e4736"),
        ("messages by key pattern", "/messages?key=order-*77"),
        ("messages by key", f"/messages?key=order-{middle}"),
        ("message", f"/messages/{last}"),
        ("failures", "/failures"),
        ("held keys", "/keys"),
        ("destinations", "/destinations"),
        ("relays", "/relays"),
        ("audit", "/audit"),
        ("preview of a bulk retry", "/act?action=retry&status=FAILED&destination=orders"),
    ]


def _hours(rows: int) -> str:
    return f"{max(1, int(rows * _SECONDS_A_ROW / 7200))}h"


def _measure(client: TestClient, path: str) -> list[float]:
    samples: list[float] = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        answer = client.get(path)
        samples.append((time.perf_counter() - began) * 1000)
        if answer.status_code != 200:
            raise BenchError(f"the console answered {path} with {answer.status_code}")
    return samples
