"""What triggers did not see is found by `outbox-bridge repair`, beside everybody's work."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge.relay import reconciler
from tests.claims.desk import InBackground, ids
from tests.claims.outbox import count, faults, insert, state, states, unclaimed, waits
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from tests.claims.conftest import OpenConnection, OpenDesk
    from tests.claims.desk import Desk
    from tests.fixtures.cli import RunCliFunction

Conn = psycopg.Connection[Any]


@pytest.fixture
def restored(connect: OpenConnection) -> Conn:
    """A connection that skips triggers, as a restore does."""
    conn = connect()
    conn.execute("set session_replication_role = replica")
    return conn


def restore(conn: Conn) -> None:
    """Load rows of every state, with and without ordering key, and no side tables."""
    for status in ("PENDING", "PROCESSING", "SENT", "FAILED", "CANCELLED"):
        insert(conn, 4, status=status)
        insert(conn, 2, status=status, ordering_key="k", destination="invoices")
    insert(conn, 2, next_run_at="now() + interval '1 day'")
    insert(conn, 1, next_run_at="'-infinity'::timestamptz")
    conn.execute(
        "update app_outbox set claim_id = gen_random_uuid() "
        "where status = 'PROCESSING' and outbox_id % 2 = 0"
    )


def test_rows_of_a_restore_without_triggers_are_repaired_and_sent(
    conn: Conn, restored: Conn, desk: Desk, run_cli: RunCliFunction
) -> None:
    restore(restored)
    assert ids(desk.claim(["orders", "invoices"])) == []
    assert len(faults(conn)) == 3
    done = run_cli("repair", "--json")
    assert json.loads(done.stdout) == {
        "queued": 9,
        "released": 6,
        "adopted": 0,
        "recounted": 4 + 6,
    }
    assert faults(conn) == {}
    assert unclaimed(conn) == []
    desk.take_all_lanes()
    batches = [desk.claim(["orders", "invoices"]), desk.claim_ordered()]
    assert sorted(len(batch.rows) for batch in batches) == [4, 9]
    assert sum(desk.settle(batch) for batch in batches) == 13
    assert states(conn) == {"SENT": 6 + 13, "FAILED": 6, "CANCELLED": 6, "PENDING": 2}


def test_a_second_repair_finds_nothing(restored: Conn, run_cli: RunCliFunction) -> None:
    restore(restored)
    run_cli("repair")
    done = run_cli("repair")
    assert [line.split() for line in done.stdout.splitlines()[1:]] == [
        ["queued", "0"],
        ["released", "0"],
        ["adopted", "0"],
        ["recounted", "0"],
    ]
    assert "counting" in done.stderr


def test_repair_of_a_missing_schema_says_what_to_do(
    run_cli: RunCliFunction, empty_database_url: str
) -> None:
    done = run_cli("repair", check=False)
    assert done.returncode == 3
    assert "outbox-bridge migrate up" in done.stderr


def test_wrong_counters_and_lists_are_put_right(conn: Conn, restored: Conn, desk: Desk) -> None:
    for status in ("SENT", "FAILED", "CANCELLED"):
        insert(conn, 3, status=status)
    restored.execute("update app_outbox set status = 'SENT' where status = 'FAILED'")
    (failed,) = insert(restored, status="FAILED")
    restored.execute("delete from app_outbox where status = 'CANCELLED'")
    conn.execute("insert into app_outbox_counter values ('gone', 'SENT', 7)")
    conn.execute("insert into app_outbox_failed values (0, 'gone', 't', 'x')")
    assert desk.reconciler.recount() > 0
    assert faults(conn) == {}
    assert conn.execute("select outbox_id from app_outbox_failed").fetchall() == [(failed,)]
    assert desk.reconciler.recount() == 0


def test_repair_leaves_living_claims_alone(conn: Conn, restored: Conn, desk: Desk) -> None:
    restore(restored)
    insert(conn, 5)
    batch = desk.claim()
    desk.reconciler.reconcile()
    assert [state(conn, row) for row in ids(batch)] == ["PROCESSING"] * 5
    assert desk.settle(batch) == 5


def test_gaps_in_the_ids_are_jumped_over(conn: Conn, restored: Conn, desk: Desk) -> None:
    for outbox_id in (-(1 << 63), 5, 1 << 40, (1 << 63) - 1):
        restored.execute(
            "insert into app_outbox (outbox_id, message_key, event_type, destination) "
            "values (%s, %s, 't', 'orders')",
            [outbox_id, f"id {outbox_id}"],
        )
    steps: list[int] = []
    found = desk.reconciler.reconcile(on_step=lambda done, _last: steps.append(done))
    assert found.queued == 4
    assert len(steps) == 4
    assert faults(conn) == {}


def test_a_row_claimed_while_orphans_are_released_keeps_its_claim(
    conn: Conn, connect: OpenConnection, restored: Conn, open_desk: OpenDesk
) -> None:
    desk = open_desk(lock_timeout=30)
    (row,) = insert(restored, status="PROCESSING")
    person = connect(autocommit=False)
    person.execute("update app_outbox set status = 'PENDING' where outbox_id = %s", [row])
    release = InBackground(desk.reconciler.reconcile)
    wait_until(lambda: waits(conn), "the reconciler waits for the row")
    # Made PENDING and claimed in one commit: the reconciler sees both at once.
    claim_id = "5f0f7f4a-0000-4000-8000-000000000001"
    person.execute(
        "update app_outbox set status = 'PROCESSING', claim_id = %s where outbox_id = %s",
        [claim_id, row],
    )
    person.execute(
        "insert into app_outbox_claim (claim_id, relay_id, outbox_ids) values (%s, %s, %s)",
        [claim_id, desk.relay_id, [row]],
    )
    person.commit()
    assert release.result().released == 0
    assert state(conn, row) == "PROCESSING"


def test_a_recount_waits_for_nobody_and_stops_nobody(
    conn: Conn, connect: OpenConnection, restored: Conn, desk: Desk
) -> None:
    insert(restored, 3, status="SENT")
    person = connect(autocommit=False)
    insert(person, 2, status="SENT")
    person.execute("update app_outbox set status = 'CANCELLED' where destination = 'orders'")
    settling = desk.open_session("other")
    with settling.connection.transaction():
        assert settling.run("recount_rows") == 1
        rows = insert(conn, 2)
        assert desk.settle(desk.claim()) == len(rows)
    settling.close()
    person.commit()
    assert faults(conn) == {}


def test_repair_beside_writers_and_relays_leaves_everything_in_step(
    conn: Conn,
    connect: OpenConnection,
    restored: Conn,
    open_desk: OpenDesk,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconciler, "STEP", 50)
    restore(restored)
    insert(restored, 300)
    working, repairing = open_desk("works"), open_desk("repairs")
    stop = threading.Event()
    writer = connect()

    def write() -> None:
        while not stop.is_set():
            insert(writer, 3)
            insert(writer, 1, status="FAILED")
            writer.execute(
                "update app_outbox set status = case status when 'FAILED' then 'CANCELLED' "
                "else 'PENDING' end where outbox_id in (select outbox_id from app_outbox "
                "where status in ('FAILED', 'CANCELLED') limit 3)"
            )

    def relay() -> None:
        while not stop.is_set():
            batch = working.claim(["orders", "invoices"], rows=20, statement="claim_rows_skipping")
            working.settle(batch)

    running = [InBackground(write), InBackground(relay)]
    for _ in range(5):
        repairing.reconciler.reconcile()
        repairing.reconciler.recount()
    stop.set()
    for work in running:
        work.result()
    repairing.reconciler.reconcile()
    assert faults(conn) == {}
    assert unclaimed(conn) == []
    assert repairing.reconciler.recount() == 0
    sent = conn.execute("select max(claim_count) from app_outbox").fetchone()
    assert sent is not None
    assert count(conn, "app_outbox_claim") == 0
