"""The monitoring views tell the truth, whatever the side tables' hints say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge.database.session import Session
from bridge.database.template import advisory_class
from tests.cli.test_status import claim, insert, settle, truth
from tests.fixtures.postgres import on_one_server

if TYPE_CHECKING:
    from tests.views.conftest import Views


def register(conn: psycopg.Connection[Any], name: str, silent: str = "1 s", **columns: Any) -> int:
    names = "".join(f", {column}" for column in columns)
    marks = ", %s" * len(columns)
    row = conn.execute(
        "insert into app_outbox_relay (relay_name, host, pid, version, lease_seconds, "
        f"heartbeat_at{names}) values (%s, 'h', 1, '1', 120, now() - %s::interval{marks}) "
        "returning relay_id",
        [name, silent, *columns.values()],
    ).fetchone()
    assert row is not None
    return int(row[0])


def hold_lock(conn: psycopg.Connection[Any], relay_id: int) -> None:
    conn.execute("select pg_advisory_lock(%s, %s)", [advisory_class("relay", "public"), relay_id])


def test_counts_are_exact_beside_stale_and_double_entries(views: Views) -> None:
    assert views.statuses() == dict.fromkeys(
        ("PENDING", "PROCESSING", "SENT", "FAILED", "CANCELLED"), 0
    )
    ids = insert(views.conn, 20) + insert(views.conn, 5, "invoices")
    claim(views.conn, ids[:8])
    settle(views.conn, ids[:3])
    update = "update app_outbox set {} where outbox_id = any(%s)"
    views.conn.execute(update.format("status = 'FAILED'").encode(), [ids[8:10]])
    views.conn.execute(update.format("status = 'CANCELLED'").encode(), [[ids[10]]])
    later = update.format("next_run_at = now() + interval '1 day'").encode()
    views.conn.execute(later, [[ids[11], ids[22]]])
    views.conn.execute(
        "insert into app_outbox_queue (outbox_id, destination, next_run_at) "
        "values (%s, 'orders', now()), (%s, 'orders', now()), (-1, 'nowhere', now())",
        [ids[12], ids[0]],
    )
    assert views.statuses() == truth(views.conn)
    both = views.destinations()
    assert both.keys() == {"orders", "invoices"}
    orders = both["orders"]
    assert (orders["pending"], orders["due"], orders["later"]) == (9, 8, 1)
    assert (orders["processing"], orders["sent"], orders["failed"]) == (5, 3, 2)
    assert (both["invoices"]["due"], both["invoices"]["later"]) == (4, 1)
    views.conn.execute("delete from app_outbox where outbox_id = any(%s)", [ids[:12]])
    assert views.statuses() == truth(views.conn)


def test_infinite_times_neither_count_as_an_age_nor_break_anything(views: Views) -> None:
    ids = insert(views.conn, 3)
    for outbox_id, moment in zip(ids, ("infinity", "-infinity", "1900-01-01"), strict=True):
        views.conn.execute(
            "update app_outbox set next_run_at = %s::timestamptz where outbox_id = %s",
            [moment, outbox_id],
        )
    views.conn.execute(
        "update app_outbox set created_at = '-infinity' where outbox_id = %s", [ids[1]]
    )
    assert views.destinations()["orders"]["later"] == 1
    rows = views.conn.execute(
        "select outbox_id, waiting_seconds is null from outbox_unsent order by 1"
    ).fetchall()
    assert rows == [(ids[0], True), (ids[1], True), (ids[2], False)]
    views.conn.execute("table outbox_oldest_unsent")


def test_oldest_unsent_come_first_and_rows_not_due_are_left_out(views: Views) -> None:
    ids = insert(views.conn, 150)
    views.conn.execute(
        "update app_outbox set next_run_at = now() + (outbox_id %% 2) * interval '1 day', "
        "created_at = now() - outbox_id * interval '1 minute' where outbox_id > %s",
        [ids[0] - 1],
    )
    views.conn.execute("update app_outbox set next_run_at = created_at where next_run_at <= now()")
    listed = [row["outbox_id"] for row in views.read("outbox_oldest_unsent", "waiting_since")]
    due = [outbox_id for outbox_id in reversed(ids) if outbox_id % 2 == 0]
    assert listed == due[:100]


def test_near_the_retry_limit_is_one_failure_before_the_end(views: Views) -> None:
    ids = insert(views.conn, 4)
    for outbox_id, (failed, most) in zip(ids, ((0, 1), (3, 5), (4, 5), (6, 5)), strict=True):
        views.conn.execute(
            "update app_outbox set retry_count = %s, max_retry_count = %s, "
            "last_error_code = 'X', next_run_at = now() + interval '1 hour' where outbox_id = %s",
            [failed, most, outbox_id],
        )
    listed = {
        row["outbox_id"]: row["attempts_left"] for row in views.read("outbox_near_retry_limit")
    }
    assert listed == {ids[2]: 1, ids[3]: -1}


def test_stuck_rows_are_those_nobody_is_about_to_settle(views: Views, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as session:
        living = register(views.conn, "living")
        hold_lock(session, living)
        dead = register(views.conn, "dead")
        fresh, old, lost, orphan = (insert(views.conn, 2) for _ in range(4))
        for ids, relay_id in ((fresh, living), (old, living), (lost, dead), (orphan, 4711)):
            claim(views.conn, ids, relay_id)
        settle(views.conn, old[:1])
        views.conn.execute(
            "update app_outbox_claim set claimed_at = now() - interval '6 minutes' "
            "where outbox_ids = %s::bigint[]",
            [old],
        )
        stuck = {
            row["outbox_id"]: (row["relay_name"], row["relay_state"])
            for row in views.read("outbox_stuck")
        }
    assert stuck == {
        old[1]: ("living", "living"),
        **dict.fromkeys(lost, ("dead", "dead")),
        **dict.fromkeys(orphan, (None, "gone")),
    }


def test_breakers_of_relays_that_live_are_shown(views: Views, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as session:
        hold_lock(session, register(views.conn, "one", failing='{"orders": "no leader"}'))
        register(views.conn, "dead", failing='{"orders": "of yesterday"}')
        rows = views.read("outbox_breakers")
    assert [(r["destination"], r["relay_name"], r["reason"]) for r in rows] == [
        ("orders", "one", "no leader")
    ]


@on_one_server
def test_throughput_counts_what_was_sent_in_each_minute_pruning_and_replay_aside(
    views: Views, database_url: str
) -> None:
    views.conn.execute(
        "insert into app_outbox_counter (destination, status, delta, counted_at) "
        "select d, s, n, date_trunc('minute', now()) - age + second "
        "from (values ('a', 'SENT', 7), ('a', 'SENT', 5), ('b', 'SENT', 1), ('a', 'SENT', -9), "
        "('a', 'CANCELLED', 2)) as c (d, s, n), "
        "(values (interval '5 minutes'), (interval '2 hours')) as t (age), "
        "(values (interval '1 s'), (interval '59.5 s')) as u (second)"
    )
    insert(views.conn, 1)
    views.conn.execute("update app_outbox set status = 'FAILED'")
    views.conn.execute("update app_outbox_failed set failed_at = now() - interval '7 minutes'")

    def counted() -> tuple[list[tuple[int, int, int]], list[tuple[str, int]]]:
        minutes = views.read("outbox_throughput", "minute")
        assert len(minutes) == 60
        return (
            [
                (row["sent"], row["failed"], row["cancelled"])
                for row in minutes
                if row["sent"] or row["failed"] or row["cancelled"]
            ],
            [
                (row["destination"], row["sent"])
                for row in views.read("outbox_throughput_by_destination", "2")
            ],
        )

    expected = ([(0, 1, 0), (26, 0, 4)], [("a", 24), ("b", 2)])
    assert counted() == expected
    session = Session(
        database_url, schema="public", stage="roll-up", relay_name="test", lock_timeout=5
    )
    session.open()
    try:
        for _ in range(2):
            session.run("roll_up_counters")
            assert counted() == expected
    finally:
        session.close()
    assert views.statuses()["SENT"] == 16


@on_one_server
def test_who_may_read_the_views_needs_no_right_on_what_they_read(views: Views) -> None:
    insert(views.conn, 1)
    views.conn.execute("create role viewing nologin")
    try:
        views.conn.execute("grant select on outbox_by_status, outbox_unsent to viewing")
        views.conn.execute("set role viewing")
        assert views.statuses()["PENDING"] == 1
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            views.conn.execute("select from app_outbox")
    finally:
        views.conn.execute("reset role")
        views.conn.execute("drop owned by viewing")
        views.conn.execute("drop role viewing")
