"""Rows chosen by filter, in batches that can be cut anywhere."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge.database.statements import load
from bridge.inspection import MAX_ID
from bridge.lifecycle import Status
from bridge.operations import Action, Outcome, Selection, cancel, preview, replay, retry, send_now
from bridge.operations.targets import Targets, like
from tests.claims.outbox import faults, insert, states
from tests.operations.audits import entries, everything
from tests.operations.conftest import WHY

if TYPE_CHECKING:
    from tests.claims.desk import Desk

Conn = psycopg.Connection[Any]

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture
def failed(conn: Conn) -> dict[str, int]:
    """FAILED rows that differ in one thing each from `plain`."""
    rows = {}
    for name, change in {
        "plain": "updated_at = now()",
        "destination": "destination = 'invoices'",
        "type": "event_type = 'order.paid'",
        "key": "message_key = '100%%_sure'",
        "order": "ordering_key = 'order-17'",
        "error": "last_error_code = 'MSG_SIZE_TOO_LARGE'",
        "old": "created_at = '2026-01-02 03:04:05Z'",
        "trace": f'headers = \'{{"traceparent": "00-{TRACE}-00f067aa0ba902b7-01"}}\'',
        "handed": "claim_count = 1",
    }.items():
        (rows[name],) = insert(conn, status="FAILED")
        conn.execute(f"update app_outbox set {change} where outbox_id = %s", [rows[name]])
    insert(conn)
    return rows


BEFORE = datetime(2026, 2, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("selection", "names"),
    [
        (Selection(destination="invoices"), {"destination"}),
        (Selection(event_type="order.paid"), {"type"}),
        (Selection(key_pattern="100%_*"), {"key"}),
        (Selection(key_pattern="100%?sure"), {"key"}),
        (Selection(key_pattern="100"), set()),
        (Selection(ordering_key="order-17"), {"order"}),
        (Selection(error_code="MSG_SIZE_TOO_LARGE"), {"error"}),
        (Selection(created_to=BEFORE), {"old"}),
        (
            Selection(created_from=BEFORE - timedelta(days=31), created_to=BEFORE),
            {"old"},
        ),
        (Selection(trace_id=TRACE.upper()), {"trace"}),
        (Selection(destination="orders", error_code="MSG_SIZE_TOO_LARGE"), {"error"}),
        (Selection(destination="invoices", event_type="order.paid"), set()),
    ],
)
def test_filters_choose_rows_and_a_preview_changes_nothing(
    conn: Conn, failed: dict[str, int], selection: Selection, names: set[str]
) -> None:
    before = everything(conn)
    seen = preview(conn, Action.RETRY, selection)
    assert {row.outbox_id for row in seen.examples} == {failed[name] for name in names}
    assert seen.matched == len(names)
    assert everything(conn) == before
    outcome = retry(conn, selection, **WHY)
    assert {row.outbox_id for row in outcome.rows} == {failed[name] for name in names}
    assert {entry.outbox_id for entry in entries(conn)} == {failed[name] for name in names}


def test_a_preview_counts_by_destination_and_tells_what_may_have_been_sent(
    conn: Conn, failed: dict[str, int]
) -> None:
    seen = preview(conn, Action.CANCEL, Selection(statuses=(Status.FAILED,)), examples=2)
    assert (seen.matched, seen.is_capped, len(seen.examples)) == (9, False, 2)
    assert (seen.never_sent, seen.maybe_sent) == (8, 1)
    assert seen.by_destination == (("orders", 8), ("invoices", 1))
    both = preview(conn, Action.RETRY, Selection(ids=(failed["plain"], failed["handed"], 999_999)))
    assert (both.matched, both.never_sent, both.maybe_sent) == (2, 1, 1)
    assert [refusal.outbox_id for refusal in both.refused] == [999_999]


def test_a_preview_stops_counting_in_time(conn: Conn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.operations.previews.PREVIEW_LIMIT", 5)
    insert(conn, 6)
    seen = preview(conn, Action.CANCEL, Selection(statuses=(Status.PENDING,)))
    assert (seen.matched, seen.is_capped) == (5, True)


class CutError(Exception):
    """Stands for a person's Ctrl-C."""


def test_an_interrupted_run_keeps_whole_batches_and_goes_on_when_run_again(conn: Conn) -> None:
    insert(conn, 25, status="FAILED")
    everyone = Selection(statuses=(Status.FAILED,))

    def cut(so_far: Outcome) -> None:
        if so_far.changed >= 20:
            raise CutError

    with pytest.raises(CutError):
        retry(conn, everyone, batch_rows=10, on_batch=cut, **WHY)
    assert states(conn) == {"PENDING": 20, "FAILED": 5}
    assert len(entries(conn)) == 20
    outcome = retry(conn, everyone, batch_rows=10, **WHY)
    assert (outcome.matched, outcome.changed) == (5, 5)
    assert states(conn) == {"PENDING": 25}
    assert len(entries(conn)) == 25
    assert faults(conn) == {}


def test_a_batch_that_fails_in_the_middle_leaves_nothing_of_itself(conn: Conn) -> None:
    rows = insert(conn, 30, status="FAILED")
    conn.execute(
        f"""
        create function refuse() returns trigger language plpgsql as
        $$ begin raise exception 'no room'; end $$;
        create trigger refuse before update on app_outbox for each row
        when (new.outbox_id = {rows[15]}) execute function refuse()
        """
    )
    try:
        with pytest.raises(psycopg.errors.RaiseException, match="no room"):
            retry(conn, Selection(statuses=(Status.FAILED,)), batch_rows=10, **WHY)
    finally:
        conn.execute("drop trigger refuse on app_outbox; drop function refuse()")
    assert states(conn) == {"PENDING": 10, "FAILED": 20}
    assert [entry.outbox_id for entry in entries(conn)] == rows[:10]


def test_pages_limits_and_rows_that_come_meanwhile(
    conn: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridge.operations.targets._PAGE_ROWS", 7)
    rows = insert(conn, 20)

    def more(_so_far: Outcome) -> None:
        insert(conn)

    waiting = Selection(statuses=(Status.PENDING,))
    limited = cancel(conn, waiting, limit=9, batch_rows=4, **WHY)
    assert [row.outbox_id for row in limited.rows] == rows[:9]
    rest = cancel(conn, waiting, batch_rows=3, on_batch=more, **WHY)
    assert [row.outbox_id for row in rest.rows] == rows[9:]


def test_only_rows_that_wait_are_sent_now(conn: Conn) -> None:
    insert(conn, 3)
    later = insert(conn, 2, next_run_at="now() + interval '1 hour'")
    outcome = send_now(conn, Selection(destination="orders"), **WHY)
    assert [row.outbox_id for row in outcome.rows] == later
    assert outcome.refused == ()


def test_an_interrupted_replay_goes_on_with_its_id(conn: Conn, desk: Desk) -> None:
    insert(conn, 30)
    desk.settle(desk.claim())
    sent = Selection(statuses=(Status.SENT,))
    done: list[Outcome] = []

    def cut(so_far: Outcome) -> None:
        done.append(so_far)
        raise CutError

    with pytest.raises(CutError):
        replay(conn, sent, rows_per_second=10_000, batch_rows=10, on_batch=cut, **WHY)
    conn.execute("update app_outbox set next_run_at = now()")
    desk.settle(desk.claim())
    assert states(conn) == {"SENT": 30}
    outcome = replay(conn, sent, replay_id=done[0].replay_id, rows_per_second=10_000, **WHY)
    assert outcome.changed == 20
    assert sorted(entry.outbox_id or 0 for entry in entries(conn)) == sorted(
        row[0] for row in conn.execute("select outbox_id from app_outbox")
    )


@pytest.mark.parametrize("statistics", ["none", "from when all were SENT"])
def test_few_rows_beside_many_sent_ones_are_looked_up(conn: Conn, statistics: str) -> None:
    conn.execute("set session_replication_role = replica")
    insert(conn, 20_000, status="SENT")
    conn.execute("reset session_replication_role")
    if statistics != "none":
        conn.execute("analyze")
    insert(conn, 5, status="FAILED")
    insert(conn, 5)
    parameters = Targets(conn, "public", Action.CANCEL, Selection(destination="orders"))
    plan = conn.execute(
        b"explain " + load("find_targets", "public"),
        {**parameters._parameters(), "after": 0, "until": MAX_ID, "row_limit": 100},
    ).fetchall()
    text = "\n".join(line for (line,) in plan)
    assert "Scan using app_outbox_pkey on app_outbox o" in text
    assert "Seq Scan on app_outbox o" not in text


def test_shell_patterns_become_like_patterns() -> None:
    assert like("a*b?c") == "a%b_c"
    assert like(r"50%_\x") == r"50\%\_\\x"
