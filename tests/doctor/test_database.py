"""Each verdict on the database, with one thing really broken."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from bridge.database.schema_files import read_schema_file
from bridge.database.template import advisory_class, render_script
from bridge.doctor import Limits, Verdict, examine, wakeup
from bridge.doctor.database import Database
from bridge.doctor.examination import DATABASE
from bridge.doctor.tables import UPKEEP
from bridge.settings import load_settings
from tests.cli.test_status import claim, insert
from tests.doctor.conftest import the_problem, verdicts
from tests.fixtures.postgres import on_one_server
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from tests.doctor.conftest import FindFunction
    from tests.fixtures.cli import RunCliFunction

Connection = psycopg.Connection[Any]

_OK = [Verdict.OK]


def test_a_fresh_outbox_is_well(database_url: str) -> None:
    settings = load_settings(None, {"database": {"url": database_url}})
    findings = examine(settings, only=list(DATABASE), timeout=60)
    assert [one for one in findings if one.verdict is not Verdict.OK] == []
    assert [one.check for one in findings] == list(DATABASE)


def test_a_database_that_cannot_be_reached_is_no_verdict(find: FindFunction) -> None:
    (found,) = find("queue", url="postgresql://localhost:1/none")
    assert found.verdict is Verdict.UNKNOWN
    assert "cannot connect" in found.evidence


def test_a_missing_trigger_is_named(conn: Connection, find: FindFunction) -> None:
    conn.execute("drop trigger app_outbox_after_insert on app_outbox")
    found = the_problem(find("migrations"))
    assert "app_outbox_after_insert is missing" in found.evidence


def test_an_empty_database_lacks_migrations_and_tells_nothing_else(empty_database_url: str) -> None:
    settings = load_settings(None, {"database": {"url": empty_database_url}})
    found = {one.check: one for one in examine(settings, only=["migrations", "queue", "relays"])}
    assert found["migrations"].verdict is Verdict.PROBLEM
    assert "migrate up" in found["migrations"].next_step
    assert found["queue"].verdict is found["relays"].verdict is Verdict.UNKNOWN


def test_roles_lack_what_a_newer_roles_sql_grants(conn: Connection, find: FindFunction) -> None:
    conn.execute(render_script(read_schema_file("roles.sql"), "public").encode())
    assert verdicts(find("roles")) == _OK
    conn.execute("revoke select on outbox_unsent, outbox_relays from outbox_reader")
    conn.execute("revoke update (sent_offset) on app_outbox from outbox_relay")
    reader, relay = find("roles")
    assert "outbox_reader lacks SELECT" in reader.evidence
    assert "outbox_unsent" in reader.evidence
    assert "outbox_relay lacks UPDATE" in relay.evidence
    assert "migrate roles" in relay.next_step


def test_what_everybody_may_do_is_a_problem(conn: Connection, find: FindFunction) -> None:
    conn.execute(render_script(read_schema_file("roles.sql"), "public").encode())
    conn.execute("grant delete on app_outbox to public")
    assert "DELETE on app_outbox" in find("roles")[0].evidence


def test_a_publication_that_stops_updates_is_named(conn: Connection, find: FindFunction) -> None:
    conn.execute("create publication everything for all tables")
    assert verdicts(find("publications")) == _OK
    conn.execute("alter table app_outbox_queue replica identity default")
    found = the_problem(find("publications"))
    assert "app_outbox_queue" in found.evidence
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        conn.execute("delete from app_outbox_queue")
    conn.execute(found.next_step.encode())
    conn.execute("delete from app_outbox_queue")
    assert verdicts(find("publications")) == _OK


def _break_side_tables(conn: Connection) -> None:
    conn.execute("set session_replication_role = replica")
    insert(conn, 3)
    for status, rows in (("PROCESSING", 2), ("FAILED", 1)):
        ids = insert(conn, rows)
        conn.execute("update app_outbox set status = %s where outbox_id = any(%s)", [status, ids])
    conn.execute(
        "insert into app_outbox_failed (outbox_id, destination, event_type) values (-1, 'd', 't')"
    )
    ids = insert(conn, 2)
    conn.execute("update app_outbox set ordering_key = 'k' where outbox_id = any(%s)", [ids])
    conn.execute(
        "insert into app_outbox_queue (outbox_id, destination, next_run_at, lane, key_hash, parked)"
        " select outbox_id, destination, next_run_at, hashtext('k') & 63, hashtext('k'), 'k'"
        " from app_outbox where ordering_key = 'k'"
    )
    conn.execute("reset session_replication_role")


def test_what_triggers_did_not_see_is_what_repair_puts_right(
    conn: Connection, find: FindFunction, run_cli: RunCliFunction
) -> None:
    claim(conn, insert(conn, 5)[:2])
    assert verdicts(find("queue")) == _OK
    _break_side_tables(conn)
    evidence = the_problem(find("queue")).evidence
    for words in (
        "3 rows PENDING without queue entry",
        "2 rows PROCESSING without claim",
        "1 row FAILED and missing in the list",
        "1 row in the list of failures, though not FAILED",
        "2 rows waiting for a key that nothing holds",
    ):
        assert words in evidence
    run_cli("repair")
    assert verdicts(find("queue")) == _OK


@on_one_server
def test_both_ends_of_a_long_table_are_looked_at(conn: Connection, find: FindFunction) -> None:
    insert(conn, 1000)
    conn.execute("delete from app_outbox_queue where outbox_id in (5, 500, 995)")
    assert "2 rows PENDING" in the_problem(find("queue", Limits(queue_ids=100))).evidence


def test_due_rows_without_a_relay_and_rows_of_dead_ones_are_named(
    conn: Connection, find: FindFunction
) -> None:
    ids = insert(conn, 4)
    assert "4 rows are due" in the_problem(find("relays")).evidence
    relay_id = conn.execute(
        "insert into app_outbox_relay (relay_name, host, pid, version, lease_seconds, heartbeat_at)"
        " values ('cold', 'box', 7, '1', 10, now() - interval '1 hour') returning relay_id"
    ).fetchone()
    assert relay_id is not None
    conn.execute(
        "select pg_advisory_lock(%s, %s)", [advisory_class("relay", "public"), relay_id[0]]
    )
    claim(conn, ids, relay_id[0])
    frozen, stuck = find("relays")
    assert "relay cold (pid 7 on box)" in frozen.evidence
    assert "4 rows claimed" in stuck.evidence
    assert "(frozen)" in stuck.evidence
    conn.execute("update app_outbox_relay set heartbeat_at = now()")
    assert verdicts(find("relays")) == _OK


def test_who_keeps_a_transaction_open_is_named(
    conn: Connection, find: FindFunction, database_url: str
) -> None:
    with psycopg.connect(database_url, application_name="report") as other:
        other.execute("set transaction isolation level repeatable read")
        other.execute("select from app_outbox")
        found = the_problem(find("long-transactions", Limits(transaction_seconds=0)))
        assert f"with report (pid {other.info.backend_pid}" in found.evidence
        assert "keeps a snapshot" in found.evidence
        other.rollback()
        insert(other, 1)
        found = the_problem(find("long-transactions", Limits(transaction_seconds=0)))
        assert "has written" in found.evidence
    assert verdicts(find("long-transactions")) == _OK


def test_sessions_that_hide_their_transaction_are_no_verdict(
    conn: Connection, find: FindFunction, database_url: str
) -> None:
    conn.execute("create role curious login password 'x'")
    try:
        parts = urlsplit(database_url)
        netloc = f"curious:x@{parts.hostname}:{parts.port}"
        with psycopg.connect(database_url) as other:
            insert(other, 1)
            (found,) = find("long-transactions", url=urlunsplit(parts._replace(netloc=netloc)))
        assert found.verdict is Verdict.UNKNOWN
        assert "pg_read_all_stats" in found.next_step
    finally:
        conn.execute("drop role curious")


@on_one_server
def test_a_slot_that_nobody_reads_is_named(conn: Connection, find: FindFunction) -> None:
    conn.execute("select pg_create_physical_replication_slot('forgotten', true)")
    try:
        assert verdicts(find("replication-slots")) == _OK
        insert(conn, 100)
        found = the_problem(find("replication-slots", Limits(slot_bytes=1000)))
        assert "slot forgotten keeps" in found.evidence
        assert "is read by nobody" in found.evidence
    finally:
        conn.execute("select pg_drop_replication_slot('forgotten')")


def test_autovacuum_that_is_off_or_too_seldom_is_named(
    conn: Connection, find: FindFunction
) -> None:
    conn.execute("alter table app_outbox_failed set (autovacuum_enabled = false)")
    conn.execute("alter table app_outbox_queue reset (autovacuum_vacuum_scale_factor)")
    off, seldom = find("autovacuum")
    assert "switched off for app_outbox_failed" in off.evidence
    assert "app_outbox_queue has lost autovacuum_vacuum_scale_factor" in seldom.evidence
    for found in (off, seldom):
        conn.execute(found.next_step.encode())
    assert verdicts(find("autovacuum")) == _OK


def test_upkeep_is_what_the_migrations_set(conn: Connection) -> None:
    rows = conn.execute(
        "select relname, reloptions from pg_class where relname = any(%s)", [list(UPKEEP)]
    ).fetchall()
    found = {name: dict(option.split("=") for option in options) for name, options in rows}
    assert found == UPKEEP


def test_dead_rows_that_pile_up_are_counted(conn: Connection, find: FindFunction) -> None:
    conn.execute("alter table app_outbox_queue set (autovacuum_enabled = false)")
    conn.execute(
        "insert into app_outbox_queue select n, 'd', now() from generate_series(1, 25000) as n"
    )
    conn.execute("delete from app_outbox_queue")
    conn.execute("select pg_stat_force_next_flush()")
    found = the_problem(find("dead-rows", Limits(dead_rows=10_000)))
    assert "app_outbox_queue has 25,000 dead rows" in found.evidence

    def is_clean() -> bool:
        conn.execute("vacuum app_outbox_queue")
        conn.execute("select pg_stat_force_next_flush()")
        return verdicts(find("dead-rows", Limits(dead_rows=10_000))) == _OK

    # A worker of autovacuum that looks at another table keeps dead rows until it is through.
    wait_until(is_clean, "the dead rows are gone")


@pytest.mark.parametrize(
    "index", ["(status)", "(created_at) where status = 'PENDING'", "(lower(locked_by))"]
)
def test_an_index_that_ends_hot_updates_is_named(
    conn: Connection, find: FindFunction, index: str
) -> None:
    assert verdicts(find("hot-updates")) == _OK
    conn.execute(f"create index tempting on app_outbox {index}".encode())
    found = the_problem(find("hot-updates"))
    assert "index tempting mentions" in found.evidence
    conn.execute("drop index tempting")


def test_updates_that_were_not_hot_are_counted_and_a_full_page_is_named(
    conn: Connection, find: FindFunction
) -> None:
    insert(conn, 200)
    conn.execute("create index tempting on app_outbox (status)")
    conn.execute("update app_outbox set status = 'CANCELLED'")
    conn.execute("drop index tempting")
    conn.execute("select pg_stat_force_next_flush()")
    found = the_problem(find("hot-updates", Limits(hot_updates=100)))
    assert found.evidence.startswith("0.0% of 200 updates")
    conn.execute("alter table app_outbox set (fillfactor = 90)")
    assert "fillfactor 90" in the_problem(find("hot-updates")).evidence


def test_a_clock_that_is_wrong_is_measured(conn: Connection, database_url: str) -> None:
    settings = load_settings(None, {"database": {"url": database_url}})
    database = Database(conn, settings, Limits(), 10)
    (found,) = wakeup.clock(database, now=lambda: time.time() - 90)
    assert found.verdict is Verdict.PROBLEM
    told = re.match(r"this machine is (\d+\.\d+) s behind the database", found.evidence)
    assert told is not None
    assert float(told[1]) == pytest.approx(90, abs=10)  # a busy machine answers late


def test_a_notification_that_does_not_come_back_is_a_problem(
    conn: Connection, find: FindFunction, postgres: Any, database_url: str
) -> None:
    """The direct URL leads to another database: its listeners never hear this one's writers."""
    other = postgres.create_database()
    try:
        settings = load_settings(None, {"database": {"url": database_url, "direct_url": other}})
        found = the_problem(examine(settings, only=["wake-up"], timeout=3))
        assert "no notification came" in found.evidence
    finally:
        postgres.drop_database(other)
