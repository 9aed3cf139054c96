from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge.database.template import advisory_class
from bridge.monitor import RelayState, snapshot
from bridge.version import __version__

if TYPE_CHECKING:
    from tests.fixtures.cli import RunCliFunction

STATUSES = ("PENDING", "PROCESSING", "SENT", "FAILED", "CANCELLED")


def insert(conn: psycopg.Connection[Any], count: int, destination: str = "orders") -> list[int]:
    rows = conn.execute(
        "insert into app_outbox (message_key, event_type, destination, payload_json) "
        "select %s || n, 'order.created', %s, '{}' from generate_series(1, %s) as n "
        "returning outbox_id",
        [f"{uuid.uuid4()}-", destination, count],
    )
    return [row[0] for row in rows]


def claim(conn: psycopg.Connection[Any], ids: list[int], relay_id: int = 1) -> None:
    """Claim rows as a relay does: entry, row and claim in one transaction."""
    with conn.transaction():
        claim_id = uuid.uuid4()
        conn.execute("delete from app_outbox_queue where outbox_id = any(%s)", [ids])
        conn.execute(
            "update app_outbox set status = 'PROCESSING', claim_id = %s, "
            "claim_count = claim_count + 1 where outbox_id = any(%s)",
            [claim_id, ids],
        )
        conn.execute(
            "insert into app_outbox_claim (claim_id, relay_id, outbox_ids) values (%s, %s, %s)",
            [claim_id, relay_id, ids],
        )


def settle(conn: psycopg.Connection[Any], ids: list[int]) -> None:
    with conn.transaction():
        conn.execute(
            "with settled as (update app_outbox set status = 'SENT', sent_partition = 0, "
            "sent_offset = 7, sent_at = now() where outbox_id = any(%s) returning destination) "
            "insert into app_outbox_counter (destination, status, delta) "
            "select destination, 'SENT', count(*) from settled group by 1",
            [ids],
        )


def truth(conn: psycopg.Connection[Any]) -> dict[str, int]:
    counted = dict(conn.execute("select status, count(*) from app_outbox group by 1").fetchall())
    return {status: counted.get(status, 0) for status in STATUSES}


def test_counts_are_exact_in_every_state(database_url: str, run_cli: RunCliFunction) -> None:
    with psycopg.connect(database_url, autocommit=True) as conn:
        ids = insert(conn, 20) + insert(conn, 5, "invoices")
        claim(conn, ids[:8])
        settle(conn, ids[:3])
        conn.execute(
            "update app_outbox set status = 'FAILED' where outbox_id = any(%s)", [ids[8:10]]
        )
        conn.execute("update app_outbox set status = 'CANCELLED' where outbox_id = %s", [ids[10]])
        conn.execute(
            "update app_outbox set next_run_at = now() + interval '1 day' where outbox_id = %s",
            [ids[11]],
        )
        # A second entry and a stale one: neither may count.
        conn.execute(
            "insert into app_outbox_queue (outbox_id, destination, next_run_at) "
            "values (%s, 'orders', now()), (%s, 'orders', now())",
            [ids[12], ids[0]],
        )
        expected = truth(conn)
        status = json.loads(run_cli("status", "--json").stdout)
        assert status["counts"] == expected
        assert list(expected.values()) == [14, 5, 3, 2, 1]
        assert (status["due"], status["later"]) == (13, 1)
        assert status["destinations"]["invoices"]["counts"]["PENDING"] == 5
        assert status["destinations"]["orders"]["counts"]["FAILED"] == 2
        assert [(f["destination"], f["count"]) for f in status["failures"]] == [("orders", 2)]
        conn.execute("delete from app_outbox where outbox_id = any(%s)", [ids[:12]])
        assert json.loads(run_cli("status", "--json").stdout)["counts"] == truth(conn)


def test_counts_are_of_one_moment_while_rows_move(database_url: str) -> None:
    """Each statement of the snapshot is preceded by a row that moves and commits elsewhere."""
    with psycopg.connect(database_url, autocommit=True) as mover:
        ids = insert(mover, 100)
        claim(mover, ids)
        still = list(ids)

        class MovingCursor(psycopg.Cursor[Any]):
            def execute(self, *arguments: Any, **options: Any) -> Any:
                settle(mover, [still.pop()])
                return super().execute(*arguments, **options)

        with psycopg.connect(database_url, autocommit=True, cursor_factory=MovingCursor) as reader:
            sums = {sum(snapshot(reader).counts.values()) for _ in range(5)}
        assert sums == {100}
        assert len(still) <= 75, "a row moved before each of at least five statements"


def test_age_counts_from_when_a_row_could_have_gone_out(
    database_url: str, run_cli: RunCliFunction
) -> None:
    def oldest() -> float | None:
        age = json.loads(run_cli("status", "--json").stdout)["oldest_unsent_seconds"]
        assert age is None or isinstance(age, float)
        return age

    with psycopg.connect(database_url, autocommit=True) as conn:
        assert oldest() is None
        (row,) = insert(conn, 1)
        move = (
            "update app_outbox set created_at = now() - interval '1 day', next_run_at = now() + %s"
        )
        conn.execute(move, ["1 hour"])
        assert oldest() is None, "scheduled for later"
        conn.execute(move, ["-1 hour"])
        assert oldest() == pytest.approx(3600, abs=60), "since it became due"
        claim(conn, [row])
        assert oldest() == pytest.approx(86_400, abs=60), "in flight, tried from the beginning"
        settle(conn, [row])
        assert oldest() is None


def test_relay_is_living_while_it_holds_its_lock(
    database_url: str, run_cli: RunCliFunction
) -> None:
    def register(conn: psycopg.Connection[Any], name: str, heartbeat: str) -> int:
        row = conn.execute(
            "insert into app_outbox_relay (relay_name, host, pid, version, lease_seconds, "
            "heartbeat_at) values (%s, 'h', 1, %s, 120, now() - %s::interval) returning relay_id",
            [name, __version__, heartbeat],
        ).fetchone()
        assert row is not None
        return int(row[0])

    with (
        psycopg.connect(database_url, autocommit=True) as conn,
        psycopg.connect(database_url, autocommit=True) as session,
    ):
        for name, heartbeat in (("one", "3 s"), ("two", "200 s")):
            relay_id = register(conn, name, heartbeat)
            session.execute(
                "select pg_advisory_lock(%s, %s)", [advisory_class("relay", "public"), relay_id]
            )
        register(conn, "three", "3 s")
        register(conn, "four", "200 s")
        states = {relay.relay_name: relay.state for relay in snapshot(conn).relays}
        assert states == {
            "one": RelayState.LIVING,
            "two": RelayState.FROZEN,
            "three": RelayState.DEAD,
            "four": RelayState.DEAD,
        }
        document = json.loads(run_cli("status", "--json").stdout)
        assert document["relays"][0]["state"] == "living"
        table = run_cli("status").stdout
        assert "frozen" in table
        assert "No relay" not in table


def test_table_is_plain_aligned_text_where_nobody_looks(
    database_url: str, run_cli: RunCliFunction
) -> None:
    with psycopg.connect(database_url, autocommit=True) as conn:
        insert(conn, 2)
    lines = run_cli("status").stdout.splitlines()
    assert lines[0].split() == ["destination", *STATUSES, "due", "later", "oldest"]
    assert lines[1].split()[:2] == ["orders", "2"]
    assert lines[2].startswith("(all)")
    assert all(line.isascii() for line in lines)


def test_other_schema_is_read_where_it_is_asked_for(
    empty_database_url: str, run_cli: RunCliFunction
) -> None:
    run_cli("migrate", "up", "--schema", "Out Box")
    with psycopg.connect(empty_database_url, autocommit=True) as conn:
        conn.execute('set search_path = "Out Box"')
        insert(conn, 3)
    status = json.loads(run_cli("status", "--schema", "Out Box", "--json").stdout)
    assert status["counts"]["PENDING"] == 3
    by_environment = run_cli("status", "--json", env={"OUTBOX_BRIDGE_DATABASE_SCHEMA": "Out Box"})
    assert json.loads(by_environment.stdout)["counts"]["PENDING"] == 3
