"""`fair`: how long a new row of a quiet destination takes beside the backlog of another one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.bench import outbox
from tests.bench.figures import BenchError, Findings, at_most, percentile
from tests.bench.relay_process import RelayProcess

if TYPE_CHECKING:
    from pathlib import Path

    import psycopg

    from tests.bench.lab import Lab
    from tests.bench.sizes import Sizes

_PAUSE = 0.2
_PATIENCE = 60.0
_UNDER_WAY = 5_000


def run(lab: Lab, sizes: Sizes, peer: Path | None) -> Findings:
    """Drain a backlog and commit one row of another destination now and then, until it is gone."""
    del peer
    found = Findings("fair")
    waits: list[float] = []
    for number in range(sizes.pairs):
        lab.progress(f"fair {number + 1}/{sizes.pairs}: beside {sizes.fair_rows:,} rows")
        measured = _drain(lab, sizes.fair_rows)
        found.runs.append({"rows": sizes.fair_rows, "waits": measured})
        waits += measured
    beside = f"beside {sizes.fair_rows:,} rows"
    found.add(f"new row of another destination {beside}, p50", [percentile(waits, 0.5)], "s")
    found.add("the same, slowest", [max(waits)], "s", at_most(1.0))
    return found


def _drain(lab: Lab, rows: int) -> list[float]:
    """Return the seconds from the commit of each probe to its mark as SENT."""
    server = lab.server()
    with server.database() as database, lab.topic() as topic, lab.topic() as other:
        outbox.migrate(server, database)
        with (
            server.connect(database) as connection,
            RelayProcess(
                server.url(database),
                lab.kafka.bootstrap_servers,
                folder=lab.new_folder("relay"),
            ) as relay,
        ):
            outbox.await_relay(server, database)
            # In one transaction: the relay meets all of it at once.
            with connection.transaction():
                outbox.fill(connection, topic, rows)
            _wait(
                connection,
                "select count(*) >= %s from app_outbox where status = 'SENT'",
                _UNDER_WAY,
            )
            waits: list[float] = []
            while outbox.unsent(connection, topic):
                waits.append(_probe(connection, other, len(waits)))
                time.sleep(_PAUSE)
            relay.stop()
    # The last one may have been sent when the backlog was gone.
    if len(waits) < 3:
        raise BenchError(f"the backlog was gone after {len(waits)} probes; take more rows")
    return waits[:-1]


def _probe(connection: psycopg.Connection[Any], destination: str, number: int) -> float:
    row = connection.execute(
        "insert into app_outbox (message_key, event_type, destination, payload_json) "
        "values (%s, 'probe', %s, '{}') returning outbox_id",
        [f"probe-{number}", destination],
    ).fetchone()
    assert row is not None
    _wait(connection, "select status = 'SENT' from app_outbox where outbox_id = %s", row[0])
    waited = connection.execute(
        "select extract(epoch from sent_at - created_at)::float8 from app_outbox "
        "where outbox_id = %s",
        [row[0]],
    ).fetchone()
    assert waited is not None
    return float(waited[0])


def _wait(connection: psycopg.Connection[Any], query: str, *parameters: object) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        row = connection.execute(query, parameters).fetchone()
        if row is not None and row[0]:
            return
        if time.monotonic() > deadline:
            raise BenchError(f"not within {_PATIENCE:.0f} s: {query}")
        time.sleep(0.01)
