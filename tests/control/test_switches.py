"""Switches are checked, stamped and audited, by whatever way they are set."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge.database.template import wake_channel
from bridge.errors import InvalidSwitchError
from bridge.switches import batch, limit, list_switches, pause, quiet, resume
from tests.claims.outbox import waits
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

Connection = psycopg.Connection[tuple[Any, ...]]

WHO: dict[str, Any] = {"reason": "a test", "actor": "ann@desk"}


def audit(conn: Connection) -> list[tuple[Any, ...]]:
    return conn.execute(
        "select action_name, reason, changed_by, source, outbox_id, before_state, after_state "
        "from app_outbox_audit order by audit_id"
    ).fetchall()


def state(destination: str = "orders", **switches: Any) -> dict[str, Any]:
    return {
        "destination": destination,
        "paused": False,
        "rows_per_second": None,
        "batch_rows": None,
        "quiet_hours": None,
        **switches,
    }


def test_each_change_is_audited_with_actor_reason_and_both_states(conn: Connection) -> None:
    changes = [
        pause(conn, "orders", reason=" incident 7 ", actor="ann@desk"),
        resume(conn, "orders", reason="over", actor="bob@desk"),
        limit(conn, "orders", rows_per_second=50, **WHO),
        batch(conn, rows=10, **WHO),
        quiet(conn, "orders", window="23:00 - 06:00  asia/tokyo", **WHO),
        quiet(conn, "orders", window=None, **WHO),
        limit(conn, "orders", rows_per_second=None, **WHO),
    ]
    assert all(change.changed for change in changes)
    assert [(change.before, change.after) for change in changes] == [
        (False, True),
        (True, False),
        (None, 50),
        (None, 10),
        (None, "23:00-06:00 Asia/Tokyo"),
        ("23:00-06:00 Asia/Tokyo", None),
        (50, None),
    ]
    night: dict[str, Any] = {"rows_per_second": 50, "quiet_hours": "23:00-06:00 Asia/Tokyo"}
    ann = ("ann@desk", "cli", None)
    assert audit(conn) == [
        ("pause", "incident 7", *ann, None, state(paused=True)),
        ("resume", "over", "bob@desk", "cli", None, state(paused=True), state()),
        ("limit", "a test", *ann, state(), state(rows_per_second=50)),
        ("batch", "a test", *ann, None, state("*", batch_rows=10)),
        ("quiet", "a test", *ann, state(rows_per_second=50), state(**night)),
        ("quiet", "a test", *ann, state(**night), state(rows_per_second=50)),
        ("limit", "a test", *ann, state(rows_per_second=50), state()),
    ]


def test_what_stands_so_already_is_told_and_not_audited(conn: Connection) -> None:
    assert not resume(conn, "orders", **WHO).changed
    assert not limit(conn, rows_per_second=None, **WHO).changed
    assert conn.execute("select count(*) from app_outbox_control").fetchone() == (0,)
    assert pause(conn, "orders", **WHO).changed
    assert not pause(conn, "orders", reason="once more", actor="bob").changed
    assert [entry[:3] for entry in audit(conn)] == [("pause", "a test", "ann@desk")]
    (only,) = list_switches(conn)
    assert (only.changed_by, only.reason) == ("ann@desk", "a test")


def test_each_switch_keeps_its_own_author(conn: Connection) -> None:
    pause(conn, "orders", reason="incident", actor="ann")
    limit(conn, "orders", rows_per_second=5, reason="slow consumer", actor="bob")
    pause(conn, reason="all of it", actor="eve")
    assert [
        (one.destination, one.switch, one.setting, one.changed_by, one.reason)
        for one in list_switches(conn)
    ] == [
        ("*", "paused", "yes", "eve", "all of it"),
        ("orders", "paused", "yes", "ann", "incident"),
        ("orders", "rows_per_second", "5", "bob", "slow consumer"),
    ]


def test_an_action_takes_part_in_the_callers_transaction(conn: Connection) -> None:
    with conn.transaction(force_rollback=True):
        pause(conn, **WHO)
        assert len(audit(conn)) == 1
    assert audit(conn) == []
    assert list_switches(conn) == []
    # The actor is that transaction's alone.
    conn.execute(
        "insert into app_outbox_control (destination, paused, reason) values ('a', true, 'by hand')"
    )
    assert audit(conn)[0][2:4] == (conn.info.user, "sql")


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda c: pause(c, reason="  ", actor="me"), "reason is blank"),
        (lambda c: pause(c, reason="x" * 1001, actor="me"), "at most 1000"),
        (lambda c: pause(c, "", **WHO), "destination is empty"),
        (lambda c: pause(c, "x" * 201, **WHO), "201 characters"),
        (lambda c: limit(c, rows_per_second=0, **WHO), "rows_per_second is 0"),
        (lambda c: limit(c, rows_per_second=2**31, **WHO), "give a number from 1"),
        (lambda c: batch(c, rows=-1, **WHO), "rows is -1"),
        (lambda c: quiet(c, window="", **WHO), "no daily window"),
        (lambda c: quiet(c, window="23:00-06:00", **WHO), "no daily window"),
        (lambda c: quiet(c, window="24:00-06:00 UTC", **WHO), "no daily window"),
        (lambda c: quiet(c, window="23-6 UTC", **WHO), "no daily window"),
        (lambda c: quiet(c, window="23:00-06:00 UTC x", **WHO), "no daily window"),
        (lambda c: quiet(c, window="06:00-06:00 UTC", **WHO), "begin when they end"),
        (lambda c: quiet(c, window="23:00-06:00 Mars/Olympus", **WHO), "no time zone 'Mars/Ol"),
        (lambda c: quiet(c, window="23:00-06:00 UTC+2", **WHO), "no time zone 'UTC[+]2'"),
    ],
)
def test_unusable_arguments_are_refused_and_leave_nothing(
    shared: Connection, action: Callable[[Connection], object], message: str
) -> None:
    with pytest.raises(InvalidSwitchError, match=message):
        action(shared)
    assert shared.execute("select count(*) from app_outbox_control").fetchone() == (0,)
    assert audit(shared) == []


def test_plain_sql_is_audited_like_a_command(conn: Connection) -> None:
    conn.execute(
        "insert into app_outbox_control (destination, paused, rows_per_second, reason, changed_by)"
        " values ('orders', true, 9, 'by hand', 'somebody else')"
    )
    conn.execute("update app_outbox_control set paused = false, reason = 'fixed'")
    conn.execute("update app_outbox_control set reason = 'a better word'")
    conn.execute("delete from app_outbox_control")
    me = (conn.info.user, "sql", None)
    both = state(paused=True, rows_per_second=9)
    nine = state(rows_per_second=9)
    assert audit(conn) == [
        ("pause", "by hand", *me, None, both),
        ("limit", "by hand", *me, None, both),
        ("resume", "fixed", *me, both, nine),
        ("note", "a better word", *me, nine, nine),
        ("limit", "row deleted; it was set because: a better word", *me, nine, None),
    ]


def test_a_truncate_and_a_told_reason_are_audited(conn: Connection) -> None:
    pause(conn, "orders", **WHO)
    pause(conn, **WHO)
    conn.execute("set outbox_bridge.reason = 'cleaning up'")
    conn.execute("truncate app_outbox_control")
    assert [entry[:4] for entry in audit(conn)][2:] == [
        ("resume", "cleaning up", conn.info.user, "sql")
    ] * 2
    assert list_switches(conn) == []


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("reason => null", "a switch needs a reason"),
        ("reason => '  '", "a switch needs a reason"),
        ("destination => ''", "destination is empty"),
        ("quiet_hours => 'at night'", "no daily window"),
        ("quiet_hours => '06:00-06:00 UTC'", "no daily window"),
        ("quiet_hours => '23:00-06:00 Mars/Olympus'", "no daily window"),
        # PostgreSQL reads this as two hours west of Greenwich.
        ("quiet_hours => '23:00-06:00 UTC+2'", "no daily window"),
        ("rows_per_second => 0", "app_outbox_control_check"),
        ("batch_rows => -1", "app_outbox_control_check"),
    ],
)
def test_plain_sql_cannot_set_nonsense(shared: Connection, columns: str, message: str) -> None:
    given = {"destination": "'orders'", "reason": "'why'"}
    name, _, value = columns.partition(" => ")
    given[name] = value
    with shared.transaction(force_rollback=True):
        with pytest.raises(psycopg.errors.CheckViolation, match=message), shared.transaction():
            shared.execute(
                f"insert into app_outbox_control ({', '.join(given)}) "
                f"values ({', '.join(given.values())})"
            )
        shared.execute(
            "insert into app_outbox_control (destination, reason) values ('orders', 'why')"
        )
        with pytest.raises(psycopg.errors.CheckViolation), shared.transaction():
            shared.execute(f"update app_outbox_control set {name} = {value}")
        assert [entry[0] for entry in audit(shared)] == ["note"]


def test_a_hostile_search_path_subverts_nothing(conn: Connection) -> None:
    conn.execute(
        """
        create schema evil;
        create function evil.eq(text, text) returns boolean language sql as 'select 1 / 0 = 1';
        create operator evil.= (function = evil.eq, leftarg = text, rightarg = text);
        create operator evil.<> (function = evil.eq, leftarg = text, rightarg = text);
        create function evil.now() returns timestamptz language sql as 'select null::timestamptz';
        create function evil.left(text, integer) returns text language sql as 'select ''eve''';
        create table evil.app_outbox_audit (nothing integer);
        """
    )
    conn.execute("set search_path = evil, pg_catalog, public")
    conn.execute(
        "insert into public.app_outbox_control (destination, paused, quiet_hours, reason)"
        " values ('orders', true, '23:00-06:00 UTC', 'by hand')"
    )
    conn.execute("update public.app_outbox_control set paused = false")
    conn.execute("delete from public.app_outbox_control")
    conn.execute("reset search_path")
    assert [entry[0] for entry in audit(conn)] == ["pause", "quiet", "resume", "quiet"]
    assert {entry[2] for entry in audit(conn)} == {conn.info.user}


def test_a_change_is_told_to_sleeping_relays(conn: Connection, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as listener:
        listener.execute(f"listen {wake_channel('public')}")
        pause(conn, **WHO)
        assert len(list(listener.notifies(timeout=60, stop_after=1))) == 1
        conn.execute("delete from app_outbox_control")
        assert len(list(listener.notifies(timeout=60, stop_after=1))) == 1
        # PREPARE TRANSACTION forbids NOTIFY.
        conn.execute("set outbox_bridge.notify = 'off'")
        pause(conn, **WHO)
        assert list(listener.notifies(timeout=0.2, stop_after=1)) == []


def test_two_operators_at_once_lose_nothing(conn: Connection, database_url: str) -> None:
    """Both find no row; the second waits for the first and leaves its switch alone."""

    def slow_down() -> None:
        with psycopg.connect(database_url) as third:
            limit(third, "orders", rows_per_second=7, **WHO)

    second = threading.Thread(target=slow_down)
    with psycopg.connect(database_url) as other, other.transaction():
        pause(other, "orders", **WHO)
        second.start()
        wait_until(lambda: waits(conn), "the second waits")
    second.join()
    assert [(one.switch, one.setting) for one in list_switches(conn)] == [
        ("paused", "yes"),
        ("rows_per_second", "7"),
    ]
