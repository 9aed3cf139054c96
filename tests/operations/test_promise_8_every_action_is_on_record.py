"""Promise 8: every operator action is checked, needs a reason, and is in the audit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge.database.schema_files import read_schema_file
from bridge.database.template import render_script
from bridge.errors import InvalidOperationError
from bridge.lifecycle import TRANSITIONS, Status, is_allowed
from bridge.operations import (
    STARTS,
    Action,
    Actor,
    Edit,
    Outcome,
    Selection,
    cancel,
    edit,
    list_audit,
    preview,
    release,
    replay,
    retry,
    send_now,
    skip,
    verify_audit,
)
from tests.claims.outbox import faults, insert
from tests.operations.audits import columns, entries, everything
from tests.operations.conftest import WHY

if TYPE_CHECKING:
    from collections.abc import Callable

Conn = psycopg.Connection[Any]

CLAIM_ID = "00000000-0000-4000-8000-000000000001"


def _edit(conn: Conn, selection: Selection, **common: Any) -> Outcome:
    return edit(conn, selection, Edit(destination="other"), **common)


ACTIONS: dict[Action, Callable[..., Outcome]] = {
    Action.RETRY: retry,
    Action.CANCEL: cancel,
    Action.SEND_NOW: send_now,
    Action.RELEASE: release,
    Action.REPLAY: replay,
    Action.SKIP: skip,
    Action.EDIT: _edit,
}

TARGETS = {
    Action.RETRY: Status.PENDING,
    Action.CANCEL: Status.CANCELLED,
    Action.RELEASE: Status.PENDING,
    Action.REPLAY: Status.PENDING,
}
"""Where an action leads; the others leave the status."""

SQL = {
    Action.RETRY: "select outbox_retry_failed(%s, %s)",
    Action.CANCEL: "select outbox_cancel_message(%s, %s)",
    Action.SEND_NOW: "select outbox_send_now(%s, %s)",
    Action.SKIP: "select outbox_skip_message(%s, %s)",
}


def ready_row(conn: Conn, status: Status) -> int:
    """A row of this status that was handed to Kafka once, is due later, and holds its key."""
    (row,) = insert(conn, ordering_key="k", next_run_at="now() + interval '1 hour'")
    conn.execute(
        "update app_outbox set status = %s, claim_id = %s, claim_count = 1, retry_count = 3, "
        "last_error_code = 'UNKNOWN', locked_by = 'gone' where outbox_id = %s",
        [status, CLAIM_ID, row],
    )
    conn.execute(
        "insert into app_outbox_hold (destination, ordering_key, outbox_id, key_hash, lane, "
        "boundary) select destination, ordering_key, outbox_id, hashtext(ordering_key), "
        "hashtext(ordering_key) & 63, outbox_id from app_outbox where outbox_id = %s",
        [row],
    )
    return row


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("action", Action)
def test_promise_8_an_action_is_checked_and_leaves_an_entry_or_changes_nothing(
    conn: Conn, action: Action, status: Status
) -> None:
    row = ready_row(conn, status)
    before = everything(conn)
    outcome = ACTIONS[action](conn, Selection(ids=(row,)), **WHY)
    if status not in STARTS[action]:
        assert (outcome.changed, outcome.refused_count) == (0, 1)
        (refusal,) = outcome.refused
        wanted = " or ".join(STARTS[action])
        assert refusal.why.startswith(f"{action} target is not {wanted}: it is {status} since 20")
        assert everything(conn) == before
        return
    target = TARGETS.get(action, status)
    assert target is status or is_allowed(status, target)
    assert (outcome.changed, outcome.refused) == (1, ())
    assert [(r.outbox_id, r.before, r.after, r.claim_count) for r in outcome.rows] == [
        (row, status, target, 1)
    ]
    assert (outcome.never_sent, outcome.maybe_sent) == (0, 1)
    (entry,) = entries(conn)
    assert entry[:5] == (row, action, "a test", "ann@desk", "cli")
    assert (entry.before["status"], entry.after["status"]) == (status, target)
    assert conn.execute("select request_id, database_user from app_outbox_audit").fetchone() == (
        "request-1",
        conn.info.user,
    )
    assert columns(conn, row, "status") == (target,)
    assert faults(conn) == {}
    assert verify_audit(conn).holds


def test_promise_8_actions_make_the_transitions_of_the_table_and_no_others() -> None:
    made = {(source, TARGETS[action]) for action in TARGETS for source in STARTS[action]} - {
        (Status.PROCESSING, Status.PENDING)
    }  # a rescue, which relays make as well
    assert made == {(t.source, t.target) for t in TRANSITIONS if t.audited}


@pytest.mark.parametrize("action", [*SQL])
@pytest.mark.parametrize("status", Status)
def test_promise_8_sql_functions_do_the_same(conn: Conn, action: Action, status: Status) -> None:
    row = ready_row(conn, status)
    before = everything(conn)
    if status not in STARTS[action]:
        with pytest.raises(psycopg.Error, match=f"{action} target is not ") as caught:
            conn.execute(SQL[action], [row, "a test"])
        assert caught.value.sqlstate == "OB004"
        assert f"outbox_id {row}: " in str(caught.value)
        assert everything(conn) == before
        return
    conn.execute(SQL[action], [row, " a test\n"])
    (entry,) = entries(conn)
    assert entry[:5] == (row, action, "a test", conn.info.user, "sql")
    assert columns(conn, row, "status") == (TARGETS.get(action, status),)


@pytest.mark.parametrize("reason", ["", "  ", "\n\t", "x" * 1001])
def test_promise_8_without_a_reason_nothing_happens(conn: Conn, reason: str) -> None:
    row = ready_row(conn, Status.FAILED)
    before = everything(conn)
    with pytest.raises(InvalidOperationError, match="the reason"):
        retry(conn, Selection(ids=(row,)), reason=reason, actor=Actor("me", "cli"))
    for statement in SQL.values():
        with pytest.raises(psycopg.Error) as caught:
            conn.execute(statement, [row, reason])
        assert caught.value.sqlstate == "OB003"
    with pytest.raises(psycopg.Error, match="the reason is blank"):
        conn.execute("select outbox_cancel_message(%s, null)", [row])
    assert everything(conn) == before


def test_promise_8_the_operators_role_has_no_other_way(conn: Conn) -> None:
    row = ready_row(conn, Status.FAILED)
    conn.execute(render_script(read_schema_file("roles.sql"), "public").encode())
    conn.execute("set role outbox_operator")
    for statement in (
        "update app_outbox set status = 'PENDING'",
        "update app_outbox_hold set released_at = now()",
        "delete from app_outbox_failed",
        (
            "insert into app_outbox_audit (action_name, reason, changed_by, source) "
            "values ('retry', 'forged', 'somebody else', 'cli')"
        ),
        "insert into app_outbox_audit_link values (1, 1, now(), '', '')",
        "update app_outbox_audit set reason = 'other'",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute(statement)
    # A name may be claimed, the login is the database's own word.
    conn.execute("set outbox_bridge.actor = 'the boss'")
    conn.execute("select outbox_retry_failed(%s, 'as told')", [row])
    assert conn.execute(
        "select changed_by, database_user, reason from app_outbox_audit"
    ).fetchall() == [("the boss", conn.info.user, "as told")]
    # What the commands do needs nothing but this role.
    pending = Selection(statuses=(Status.PENDING,))
    assert preview(conn, Action.CANCEL, pending).matched == 1
    assert cancel(conn, pending, **WHY).changed == 1
    assert [entry.action_name for entry in list_audit(conn)] == ["cancel", "retry"]
    assert verify_audit(conn).holds
    conn.execute("set role outbox_reader")
    assert len(preview(conn, Action.CANCEL, Selection(ids=(row,))).refused) == 1
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        cancel(conn, Selection(ids=(row,)), **WHY)
    conn.execute("reset role")
    conn.execute("reset outbox_bridge.actor")
