"""The audit's hash chain: right under concurrency, and broken by whoever changes an entry."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge.database.migrations import Migrator
from bridge.database.statements import load
from bridge.errors import InvalidOperationError
from bridge.operations import Actor, Head, Selection, cancel, list_audit, retry, verify_audit
from bridge.switches import pause, resume
from tests.claims.desk import InBackground
from tests.claims.outbox import insert, waits
from tests.fixtures.waiting import wait_until
from tests.operations.conftest import WHY

if TYPE_CHECKING:
    from tests.claims.conftest import OpenConnection

Conn = psycopg.Connection[Any]


@pytest.fixture
def acted(conn: Conn) -> list[int]:
    """Five entries: rows and switches, from a command, the console and plain SQL."""
    rows = insert(conn, 3, status="FAILED")
    cancel(conn, Selection(ids=(rows[0],)), **WHY)
    pause(conn, "orders", reason="incident 7", actor="bob", source="console")
    retry(conn, Selection(ids=(rows[1],)), reason="ünïcode '\"", actor=Actor("eve", "console"))
    conn.execute("select outbox_cancel_message(%s, 'by hand')", [rows[2]])
    resume(conn, "orders", reason="over", actor="bob")
    report = verify_audit(conn)
    assert (report.holds, report.entries, report.first_position) == (True, 5, 1)
    return rows


def as_owner(conn: Conn, *statements: str) -> None:
    """Change what triggers would refuse, as an owner can."""
    with conn.transaction():
        conn.execute("alter table app_outbox_audit disable trigger user")
        conn.execute("alter table app_outbox_audit_link disable trigger user")
        for statement in statements:
            conn.execute(statement)
        conn.execute("alter table app_outbox_audit enable trigger user")
        conn.execute("alter table app_outbox_audit_link enable trigger user")


@pytest.mark.parametrize(
    ("statement", "flaws"),
    [
        ("update app_outbox_audit set reason = 'other' where audit_id = 2", [(2, 2)]),
        ("update app_outbox_audit set changed_by = 'bob' where audit_id = 1", [(1, 1)]),
        ("update app_outbox_audit set database_user = null where audit_id = 5", [(5, 5)]),
        (
            (
                "update app_outbox_audit set changed_at = changed_at - interval '1 us' "
                "where audit_id = 3"
            ),
            [(3, 3)],
        ),
        (
            "update app_outbox_audit set before_state = before_state - 'status' where audit_id = 1",
            [(1, 1)],
        ),
        ("update app_outbox_audit_link set linked_at = now() where position = 4", [(4, 4)]),
        ("delete from app_outbox_audit where audit_id = 3", [(3, 3)]),
        ("delete from app_outbox_audit_link where position = 3", [(4, 4), (None, 3)]),
        ("delete from app_outbox_audit_link where position = 1", [(2, 2), (None, 1)]),
        ("delete from app_outbox_audit_link where position = 5", [(5, None), (None, 5)]),
        (
            (
                "insert into app_outbox_audit (action_name, reason, changed_by, source) "
                "values ('cancel', 'never happened', 'ann', 'cli')"
            ),
            [(None, 6)],
        ),
        (
            "update app_outbox_audit_link set hash = sha256('x') where position = 2",
            [(2, 2), (3, 3)],
        ),
    ],
)
def test_what_the_owner_changes_shows(
    conn: Conn, acted: list[int], statement: str, flaws: list[tuple[int | None, int | None]]
) -> None:
    as_owner(conn, statement)
    report = verify_audit(conn)
    assert [flaw[:2] for flaw in report.flaws] == flaws
    assert (report.holds, report.flaw_count) == (False, len(flaws))


@pytest.mark.parametrize(
    "statement",
    [
        (
            "delete from app_outbox_audit where audit_id >= 4; "
            "delete from app_outbox_audit_link where position >= 4"
        ),
        (
            "delete from app_outbox_audit where audit_id <= 2; "
            "delete from app_outbox_audit_link where position <= 2"
        ),
        "delete from app_outbox_audit; delete from app_outbox_audit_link",
    ],
)
def test_a_stretch_that_is_cut_off_shows(conn: Conn, acted: list[int], statement: str) -> None:
    as_owner(conn, statement)
    assert not verify_audit(conn).holds


def test_a_chain_that_was_made_anew_passes_only_without_a_noted_head(
    conn: Conn, acted: list[int]
) -> None:
    noted = verify_audit(conn).head
    assert verify_audit(conn, known_head=noted).passed_known_head
    as_owner(
        conn,
        "update app_outbox_audit set reason = 'other' where audit_id = 2",
        "delete from app_outbox_audit_link",
        "update app_outbox_audit_head set position = 0, hash = decode(repeat('00', 32), 'hex')",
        "select app_outbox_audit_append(0, null)",
    )
    assert verify_audit(conn).holds
    report = verify_audit(conn, known_head=noted)
    assert [flaw[:2] for flaw in report.flaws] == [(5, 5)]
    # Cut off behind the noted place, and the head put back.
    as_owner(
        conn,
        "delete from app_outbox_audit where audit_id = 5",
        "delete from app_outbox_audit_link where position = 5",
        "update app_outbox_audit_head as h set position = l.position, hash = l.hash "
        "from app_outbox_audit_link as l where l.position = 4",
    )
    assert verify_audit(conn).holds
    assert "before the noted head" in verify_audit(conn, known_head=noted).flaws[0].what


@pytest.mark.parametrize("name", ["read_audit_chain", "find_audit_anchor", "find_unlinked_audit"])
def test_verifying_asks_no_function_that_an_owner_could_replace(name: str) -> None:
    asked = re.findall(r'"public"\.(\w+)', load(name, "public").decode())
    assert set(asked) <= {"app_outbox_audit", "app_outbox_audit_link"}


@pytest.mark.parametrize(
    "statement",
    [
        "update app_outbox_audit set reason = 'x'",
        "delete from app_outbox_audit",
        "truncate app_outbox_audit",
        "update app_outbox_audit_link set position = 9",
        "delete from app_outbox_audit_link",
        "truncate app_outbox_audit_link",
        "delete from app_outbox_audit_head",
        "truncate app_outbox_audit_head",
        "insert into app_outbox_audit_head values (false, 1, '')",
    ],
)
def test_triggers_refuse_it_to_the_owner_as_well(
    conn: Conn, acted: list[int], statement: str
) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="is append-only"):
        conn.execute(statement)
    assert verify_audit(conn).holds


def test_an_open_transaction_holds_up_nobodys_action(conn: Conn, connect: OpenConnection) -> None:
    """Somebody forgets to commit; the stop flag must still be set at once."""
    rows = insert(conn, 2)
    forgotten = connect(autocommit=False)
    forgotten.execute("select outbox_cancel_message(%s, 'and then lunch')", [rows[0]])
    pause(conn, reason="incident", actor="ann")
    cancel(conn, Selection(ids=(rows[1],)), **WHY)
    forgotten.commit()
    report = verify_audit(conn)
    assert (report.holds, report.entries) == (True, 3)
    # The chain is in the order of commits, ids are in the order of inserts.
    assert [entry.position for entry in list_audit(conn)] == [2, 1, 3]


def test_commits_at_the_same_moment_follow_one_another(conn: Conn, connect: OpenConnection) -> None:
    insert(conn)
    early = connect(autocommit=False)
    # As PREPARE TRANSACTION would: the end of the chain is locked before the commit.
    early.execute("select outbox_cancel_message(%s, 'first')", [insert(conn)[0]])
    early.execute("set constraints all immediate")
    late = connect()
    run = InBackground(lambda: pause(late, reason="second", actor="bob"))
    wait_until(lambda: waits(conn), "the second waits at its commit")
    early.commit()
    run.result()
    report = verify_audit(conn)
    assert (report.holds, report.entries) == (True, 2)


def test_entries_of_one_transaction_are_all_linked(conn: Conn) -> None:
    """Those of savepoints too, and those that come after the constraint was asked for early."""
    rows = insert(conn, 5)
    with conn.transaction():
        cancel(conn, Selection(ids=tuple(rows[:2])), **WHY)
        with conn.transaction(force_rollback=True):
            cancel(conn, Selection(ids=(rows[2],)), **WHY)
        pause(conn, "orders", reason="incident", actor="ann")
        conn.execute("set constraints all immediate")
        # The head moves once, not once for each of them: its dead versions would pile up.
        moved = conn.execute(
            "select pg_stat_get_xact_tuples_updated('app_outbox_audit_head'::regclass)"
        ).fetchone()
        assert moved == (1,)
        cancel(conn, Selection(ids=tuple(rows[3:])), **WHY)
    report = verify_audit(conn)
    assert (report.holds, report.entries) == (True, 5)


def test_an_old_snapshot_does_not_fork_the_chain(conn: Conn, connect: OpenConnection) -> None:
    row, other = insert(conn, 2)
    old = connect(autocommit=False)
    old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    old.execute("select count(*) from app_outbox_audit")
    cancel(conn, Selection(ids=(other,)), **WHY)
    old.execute("select outbox_cancel_message(%s, 'late')", [row])
    with pytest.raises(psycopg.errors.SerializationFailure):
        old.commit()
    report = verify_audit(conn)
    assert (report.holds, report.entries) == (True, 1)


@pytest.mark.usefixtures("patient")
def test_many_sessions_at_once_make_one_chain(conn: Conn, connect: OpenConnection) -> None:
    def act(session: Conn, number: int) -> None:
        for turn in range(15):
            act_on = insert(session)
            cancel(session, Selection(ids=tuple(act_on)), **WHY)
            if turn % 5 == 0:
                with session.transaction(force_rollback=True):
                    pause(session, f"d{number}", reason="given up", actor="ann")

    sessions = [connect() for _ in range(6)]
    runs = [InBackground(lambda s=s, n=n: act(s, n)) for n, s in enumerate(sessions)]
    for run in runs:
        run.result()
    report = verify_audit(conn)
    assert (report.holds, report.entries, report.head.position) == (True, 90, 90)


def test_pruning_leaves_a_chain_that_holds(conn: Conn, acted: list[int]) -> None:
    before = verify_audit(conn).head
    as_owner(conn, "update app_outbox_audit set changed_at = now() - interval '40 days'")
    as_owner(
        conn,
        "delete from app_outbox_audit_link",
        "update app_outbox_audit_head set position = 0, hash = decode(repeat('00', 32), 'hex')",
        "select app_outbox_audit_append(0, null)",
    )
    cancel(conn, Selection(ids=tuple(insert(conn))), **WHY)
    assert conn.execute("select app_outbox_prune_audit(30)").fetchone() == (5,)
    report = verify_audit(conn)
    assert (report.holds, report.entries, report.first_position) == (True, 2, 6)
    assert report.head.position == 7
    # A head that was noted before is not known any more, and nothing is said against the chain.
    again = verify_audit(conn, known_head=before)
    assert (again.holds, again.passed_known_head) == (True, False)
    # All of it goes: what stays is the entry that says so, and then the next ones.
    as_owner(conn, "update app_outbox_audit set changed_at = now() - interval '40 days'")
    assert conn.execute("select app_outbox_prune_audit(30)").fetchone() == (2,)
    assert verify_audit(conn).first_position == 8
    assert verify_audit(conn).holds
    cancel(conn, Selection(ids=tuple(insert(conn))), **WHY)
    assert verify_audit(conn).holds
    # A beginning that is cut off by hand is no pruning.
    as_owner(
        conn,
        "delete from app_outbox_audit where audit_id = (select min(audit_id) from "
        "app_outbox_audit)",
        "delete from app_outbox_audit_link where position = 8",
    )
    assert "no pruning took them" in verify_audit(conn).flaws[0].what


def test_entries_from_before_the_chain_are_in_it(empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as conn:
        Migrator(conn).up(5)
        for reason in ("one", "two"):
            conn.execute(
                "insert into app_outbox_audit (action_name, reason, changed_by, source) "
                "values ('cancel', %s, 'ann', 'sql')",
                [reason],
            )
        conn.execute(
            "insert into app_outbox_control (destination, paused, reason) values ('a', true, 'x')"
        )
        Migrator(conn).up()
        pause(conn, reason="after", actor="ann")
        report = verify_audit(conn)
        assert (report.holds, report.entries) == (True, 4)
        assert [entry.database_user for entry in list_audit(conn)] == [
            conn.info.user,
            *[None] * 3,
        ]
        Migrator(conn).down(5)
        resume(conn, reason="as before", actor="ann")
        count = conn.execute("select count(*) from app_outbox_audit").fetchone()
        assert count == (5,)
        assert conn.execute("select app_outbox_prune_audit(30)").fetchone() == (0,)


def test_an_empty_audit_holds(conn: Conn) -> None:
    report = verify_audit(conn)
    assert (report.holds, report.entries, str(report.head)) == (True, 0, "0:" + "00" * 32)
    assert Head.parse(str(report.head)) == report.head


@pytest.mark.parametrize("text", ["", "1", "1:zz", "-1:" + "00" * 32, "1:" + "00" * 31])
def test_what_is_no_head_is_refused(text: str) -> None:
    with pytest.raises(InvalidOperationError, match="no head of the audit"):
        Head.parse(text)


def test_entries_are_found_by_every_filter(conn: Conn, acted: list[int]) -> None:
    assert [entry.audit_id for entry in list_audit(conn)] == [5, 4, 3, 2, 1]
    assert [entry.audit_id for entry in list_audit(conn, limit=2, before=4)] == [3, 2]
    for found, filters in (
        ([1], {"outbox_id": acted[0]}),
        ([2], {"action": "pause"}),
        ([5, 2], {"changed_by": "bob"}),
        ([3, 2], {"source": "console"}),
        ([1], {"request_id": "request-1"}),
        ([5, 4, 3, 2, 1], {"changed_by": conn.info.user}),
    ):
        assert [entry.audit_id for entry in list_audit(conn, **filters)] == found
