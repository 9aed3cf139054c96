"""What each action does to a row, and what the audit keeps of it."""

from __future__ import annotations

import hashlib
import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge.errors import InvalidMessageError, InvalidOperationError, SchemaError
from bridge.lifecycle import Status
from bridge.message import HEADER_REPLAY_ID
from bridge.operations import (
    Action,
    Actor,
    Edit,
    Selection,
    cancel,
    edit,
    exposure,
    list_audit,
    preview,
    release,
    replay,
    retry,
    send_now,
    skip,
)
from tests.claims.desk import ids
from tests.claims.outbox import faults, insert, state
from tests.operations.audits import columns, entries, everything
from tests.operations.conftest import WHY

if TYPE_CHECKING:
    from tests.claims.conftest import OpenDesk
    from tests.claims.desk import Desk

Conn = psycopg.Connection[Any]


def fail(conn: Conn, *rows: int, code: str = "UNKNOWN") -> None:
    conn.execute(
        "update app_outbox set status = 'FAILED', retry_count = 5, last_error_code = %s, "
        "claim_id = gen_random_uuid(), claim_count = 5 where outbox_id = any(%s)",
        [code, list(rows)],
    )


def test_a_retried_row_is_the_same_row_with_all_its_attempts(conn: Conn, desk: Desk) -> None:
    kept, fresh = insert(conn, 2)
    fail(conn, kept, fresh)
    key = columns(conn, fresh, "message_key")
    retry(conn, Selection(ids=(fresh,)), **WHY)
    retry(conn, Selection(ids=(kept,)), keep_retry_count=True, **WHY)
    assert columns(conn, fresh, "status, retry_count, claim_id, claim_count") == (
        "PENDING", 0, None, 5,
    )  # fmt: skip
    assert columns(conn, kept, "status, retry_count") == ("PENDING", 5)
    batch = desk.claim()
    assert sorted(ids(batch)) == sorted((kept, fresh))
    assert desk.settle(batch) == 2
    assert columns(conn, fresh, "message_key") == key
    (entry,) = entries(conn, fresh)
    assert (entry.before["retry_count"], entry.after["retry_count"]) == (5, 0)
    assert entry.after["claim_id"] is None


def test_a_cancelled_row_is_never_sent_and_tells_whether_it_may_have_been(
    conn: Conn, desk: Desk
) -> None:
    never, maybe = insert(conn, 2)
    conn.execute("update app_outbox set claim_count = 1 where outbox_id = %s", [maybe])
    outcome = cancel(conn, Selection(ids=(maybe, never, never)), **WHY)
    assert (outcome.changed, outcome.never_sent, outcome.maybe_sent) == (2, 1, 1)
    assert [row.exposure for row in outcome.rows] == [
        "never handed to Kafka",
        "may have been sent",
    ]
    assert exposure("SENT", 1) == "was sent"
    assert desk.look(100) == []
    assert faults(conn) == {}


def test_a_row_that_waits_is_sent_now(conn: Conn, desk: Desk) -> None:
    (later,) = insert(conn, next_run_at="'infinity'")
    (due,) = insert(conn, next_run_at="now() - interval '1 hour'")
    outcome = send_now(conn, Selection(ids=(later, due)), **WHY)
    assert [row.outbox_id for row in outcome.rows] == [later]
    assert "due already" in outcome.refused[0].why
    assert desk.look(10) == [later, due]
    assert faults(conn) == {}


def test_a_skipped_head_lets_its_followers_go_and_stays_failed(conn: Conn, desk: Desk) -> None:
    desk.take_all_lanes()
    head, follower = insert(conn, 2, ordering_key="k")
    batch = desk.claim_ordered(rows=1)
    desk.fail(batch, final=True)
    assert desk.look_ordered(10) == []
    outcome = skip(conn, Selection(ids=(head, follower)), **WHY)
    assert outcome.changed == 1
    assert outcome.refused == ((follower, "skip target holds no ordering key"),)
    again = skip(conn, Selection(ids=(head,)), **WHY)
    assert "skipped already" in again.refused[0].why
    desk.return_followers()
    assert desk.look_ordered(10) == [follower]
    assert state(conn, head) == "FAILED"
    (entry,) = entries(conn)
    assert (entry.before["holds_key"], entry.after["holds_key"]) == (True, False)


def test_a_replayed_row_goes_out_again_with_the_same_key_and_a_header(
    conn: Conn, desk: Desk
) -> None:
    rows = insert(conn, 3)
    desk.settle(desk.claim())
    before = columns(conn, rows[0], "message_key, created_at, payload_json::text")
    outcome = replay(conn, Selection(ids=tuple(rows)), rows_per_second=10_000, **WHY)
    assert (outcome.changed, outcome.never_sent, outcome.maybe_sent) == (3, 0, 3)
    assert outcome.replay_id is not None
    uuid.UUID(outcome.replay_id)
    headers = f"headers = jsonb_build_object('outbox-replay-id', '{outcome.replay_id}')"
    assert columns(conn, rows[0], f"status, {headers}, sent_at, sent_offset") == (
        "PENDING", True, None, -1,
    )  # fmt: skip
    (entry,) = entries(conn, rows[0])
    assert entry.before["sent_offset"] == 0
    assert entry.before["sent_at"] is not None
    assert faults(conn) == {}
    conn.execute("update app_outbox set next_run_at = now()")
    batch = desk.claim()
    assert desk.settle(batch) == 3
    assert columns(conn, rows[0], "message_key, created_at, payload_json::text") == before
    assert columns(conn, rows[0], "status, claim_count") == ("SENT", 2)
    # The same replay once more leaves them out, another one takes them.
    selection = Selection(statuses=(Status.SENT,))
    again = replay(conn, selection, replay_id=outcome.replay_id, **WHY)
    assert again.matched == 0
    by_id = replay(conn, Selection(ids=(rows[0],)), replay_id=outcome.replay_id, **WHY)
    assert "replayed under this id already" in by_id.refused[0].why
    assert replay(conn, selection, rows_per_second=10_000, **WHY).changed == 3


def test_replayed_rows_become_due_at_the_rate_that_was_asked_for(conn: Conn, desk: Desk) -> None:
    insert(conn, 40)
    desk.settle(desk.claim())
    outcome = replay(conn, Selection(statuses=(Status.SENT,)), rows_per_second=20, **WHY)
    assert outcome.changed == 40
    spread = conn.execute(
        "select extract(epoch from max(next_run_at) - min(next_run_at))::float8 from app_outbox"
    ).fetchone()
    assert spread is not None
    assert spread[0] >= 39 / 20 * 0.95


def test_the_claim_of_a_dead_relay_is_released_and_of_a_living_one_not(
    conn: Conn, open_desk: OpenDesk
) -> None:
    living, dead = open_desk("living"), open_desk("dead")
    (of_living,) = insert(conn, destination="a")
    of_dead = insert(conn, 3, destination="b")
    living.claim(["a"])
    late = dead.claim(["b"])
    dead.die()
    everyone = Selection(statuses=(Status.PROCESSING,))
    # It may have lost its connection only for a moment.
    conn.execute("update app_outbox_relay set heartbeat_at = now()")
    fresh = release(conn, Selection(ids=(of_dead[0],)), **WHY)
    assert "belongs to relay dead, whose session ended" in fresh.refused[0].why
    assert preview(conn, Action.RELEASE, everyone).matched == 0
    conn.execute(
        "update app_outbox_relay set heartbeat_at = now() - interval '11 s' "
        "where relay_name = 'dead'"
    )
    refused = release(conn, Selection(ids=(of_living,)), **WHY)
    assert "belongs to relay living, which lives" in refused.refused[0].why
    assert release(conn, Selection(ids=(of_dead[0],)), **WHY).changed == 1
    assert conn.execute("select count(*) from app_outbox_claim").fetchone() == (2,)
    assert release(conn, everyone, **WHY).changed == 2
    # The claim goes with its last row, the token stays: a late acknowledgement would still count.
    assert conn.execute("select count(*) from app_outbox_claim").fetchone() == (1,)
    assert columns(conn, of_dead[1], "status, retry_count, last_error_code, claim_id::text") == (
        "PENDING", 0, "STUCK_PROCESSING", late.claim_id,
    )  # fmt: skip
    assert state(conn, of_living) == "PROCESSING"
    assert faults(conn) == {}
    assert sorted(living.look(10)) == of_dead


def test_stuck_rows_are_recovered_from_living_relays_after_their_lease(
    conn: Conn, open_desk: OpenDesk
) -> None:
    desk = open_desk("hung", lease=60, heartbeat_interval=5)
    rows = insert(conn, 2)
    batch = desk.claim()
    assert conn.execute("select outbox_recover_stuck(1)").fetchone() == (0,)
    refused = release(conn, Selection(ids=(rows[0],)), stuck_minutes=1, **WHY)
    assert "within 60 s" in refused.refused[0].why
    conn.execute("update app_outbox_claim set claimed_at = now() - interval '11 min'")
    conn.execute("update app_outbox set locked_at = now() - interval '11 min'")
    assert conn.execute("select outbox_recover_stuck(12)").fetchone() == (0,)
    assert conn.execute("select outbox_recover_stuck(10)").fetchone() == (2,)
    assert conn.execute("select count(*) from app_outbox_claim").fetchone() == (0,)
    assert [entry[:4] for entry in entries(conn)] == [
        (row, "release", "claimed more than 10 minutes ago", conn.info.user) for row in rows
    ]
    # It was not dead after all: what it sent counts, nothing is sent twice.
    assert desk.settle(batch) == 2
    assert faults(conn) == {}
    for minutes in ("0", "-1", "null"):
        with pytest.raises(psycopg.Error, match="give 1 or more"):
            conn.execute(f"select outbox_recover_stuck({minutes})")


def test_a_recovery_of_an_operators_session_keeps_its_other_updates_fencing(conn: Conn) -> None:
    """The session passes for a relay's only within the release."""
    (row,) = insert(conn)
    conn.execute(
        "update app_outbox set status = 'PROCESSING', claim_id = gen_random_uuid(), "
        "locked_at = now() where outbox_id = %s",
        [row],
    )
    with conn.transaction():
        release(conn, Selection(ids=(row,)), **WHY)
        assert columns(conn, row, "claim_id is null") == (False,)
        conn.execute("update app_outbox set next_run_at = now() + interval '1 s'")
        assert columns(conn, row, "claim_id is null") == (True,)


def test_edited_content_is_sent_and_the_old_payload_is_on_record(conn: Conn, desk: Desk) -> None:
    (row,) = insert(conn, payload='{"a": 1,  "a": 12345678901234567890123}')
    conn.execute(
        'update app_outbox set headers = \'{"tenant": "a", "debug": "1"}\', '
        "claim_id = gen_random_uuid() where outbox_id = %s",
        [row],
    )
    change = Edit(
        destination="invoices",
        headers={"tenant": "b"},
        drop_headers=("debug", "not there"),
        payload=b'{"a":  2, "b": 12345678901234567890123}',
    )
    assert edit(conn, Selection(ids=(row,)), change, **WHY).changed == 1
    assert columns(
        conn, row, "status, destination, headers, payload_json::text, claim_id"
    ) == (
        "PENDING", "invoices", {"tenant": "b"}, '{"a":  2, "b": 12345678901234567890123}', None,
    )  # fmt: skip
    assert faults(conn) == {}
    (entry,) = entries(conn)
    old = '{"a": 1,  "a": 12345678901234567890123}'
    assert entry.before["payload_sha256"] == hashlib.sha256(old.encode()).hexdigest()
    assert "payload" not in entry.before
    assert entry.before["destination"] == "orders"
    assert (entry.before["headers"]["tenant"], entry.after["headers"]) == ("a", {"tenant": "b"})
    assert ids(desk.claim(["orders", "invoices"])) == [row]


def test_an_edited_payload_is_kept_in_full_where_asked(conn: Conn) -> None:
    (row,) = insert(conn, payload='"\\u0000 old"')
    chosen = Selection(ids=(row,))
    new = Edit(payload=b"\x00\xff", content_type="application/octet-stream")
    edit(conn, chosen, new, keep_payload=True, **WHY)
    assert columns(conn, row, "payload_json, payload_bytes, content_type") == (
        None, b"\x00\xff", "application/octet-stream",
    )  # fmt: skip
    edit(conn, chosen, Edit(payload=None), keep_payload=True, **WHY)
    assert columns(conn, row, "payload_json, payload_bytes, content_type") == (None, None, None)
    first, second = entries(conn)
    assert first.before["payload"] == '"\\u0000 old"'
    assert "payload" not in first.after
    assert second.before["payload_base64"] == "AP8="
    assert second.before["payload_sha256"] == hashlib.sha256(b"\x00\xff").hexdigest()
    assert second.after["payload_sha256"] is None


def test_an_edit_that_changes_nothing_is_told(conn: Conn) -> None:
    (row,) = insert(conn)
    same = Edit(destination="orders", drop_headers=("none",))
    outcome = edit(conn, Selection(ids=(row,)), same, **WHY)
    assert "already" in outcome.refused[0].why
    assert entries(conn) == []


def test_a_moved_head_lets_the_followers_of_its_old_key_go(conn: Conn, desk: Desk) -> None:
    desk.take_all_lanes()
    head, follower = insert(conn, 2, ordering_key="k")
    desk.fail(desk.claim_ordered(rows=1), final=True)
    assert desk.look_ordered(10) == []
    edit(conn, Selection(ids=(head,)), Edit(destination="invoices"), **WHY)
    desk.return_followers()
    assert desk.look_ordered(10) == [follower]
    assert faults(conn) == {}


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (Edit(), InvalidOperationError, "nothing is to be changed"),
        (Edit(content_type="a/b"), InvalidOperationError, "nothing is to be changed"),
        (Edit(destination="", content_type="a/b"), InvalidOperationError, "goes with a new"),
        (Edit(destination=""), InvalidMessageError, "destination is empty"),
        (Edit(destination="x" * 201), InvalidMessageError, "201 characters"),
        (Edit(headers={"Outbox-Id": "1"}), InvalidMessageError, "written by the relay"),
        (Edit(headers={"a": "\0"}), InvalidMessageError, "NUL"),
        (Edit(headers={"a": "1"}, drop_headers=("a",)), InvalidOperationError, "both set and"),
        (Edit(payload="not json"), InvalidMessageError, "not JSON"),
        (Edit(payload="1" * 1_000_001), InvalidMessageError, "1000001 bytes"),
    ],
)
def test_unusable_content_is_refused(
    conn: Conn, change: Edit, error: type[Exception], text: str
) -> None:
    (row,) = insert(conn)
    before = everything(conn)
    with pytest.raises(error, match=text):
        edit(conn, Selection(ids=(row,)), change, **WHY)
    assert everything(conn) == before


def test_sql_may_not_write_content_that_no_relay_could_send(conn: Conn, desk: Desk) -> None:
    rows = insert(conn, 3)
    for headers in ('{"Outbox-Id": "1"}', '{"n": 1}', '{"": "x"}'):
        refused = conn.execute(
            "select refused from app_outbox_act('edit', %s, 'why', "
            "jsonb_build_object('headers', %s::jsonb))",
            [rows[:1], headers],
        ).fetchone()
        assert refused is not None
        assert refused[0].startswith("edit sets a header that")
    desk.settle(desk.claim())
    conn.execute("select app_outbox_act('replay', %s, 'why')", [rows])
    replayed = conn.execute(
        f"select headers ->> '{HEADER_REPLAY_ID}', next_run_at from app_outbox order by 2"
    ).fetchall()
    assert len({uuid.UUID(row[0]) for row in replayed}) == 1
    assert replayed[2][1] - replayed[0][1] == timedelta(milliseconds=20)


@pytest.mark.parametrize(
    ("selection", "text"),
    [
        (Selection(), "no rows are named"),
        (Selection(ids=(1,), destination="orders"), "not both"),
        (Selection(ids=(0,)), "0 is no outbox_id"),
        (Selection(ids=(2**63,)), "is no outbox_id"),
        (Selection(statuses=(Status.SENT,)), "starts from FAILED rows, not from SENT"),
        (Selection(destination=""), "a filter is empty"),
        (Selection(trace_id="xyz"), "no trace id"),
    ],
)
def test_unusable_selections_are_refused(conn: Conn, selection: Selection, text: str) -> None:
    with pytest.raises(InvalidOperationError, match=text):
        retry(conn, selection, **WHY)
    with pytest.raises(InvalidOperationError, match=text):
        preview(conn, Action.RETRY, selection)


def test_other_unusable_arguments_are_refused(conn: Conn) -> None:
    one = Selection(ids=(1,))
    with pytest.raises(InvalidOperationError, match="no name"):
        cancel(conn, one, reason="why", actor=Actor(" ", "cli"))
    with pytest.raises(InvalidOperationError, match="no UUID"):
        replay(conn, one, replay_id="again", **WHY)
    for rate in (0, -1, float("nan"), float("inf")):
        with pytest.raises(InvalidOperationError, match="rows_per_second"):
            replay(conn, one, rows_per_second=rate, **WHY)
    with pytest.raises(InvalidOperationError, match="stuck_minutes"):
        release(conn, one, stuck_minutes=0, **WHY)
    with pytest.raises(InvalidOperationError, match="by id only"):
        edit(conn, Selection(destination="orders"), Edit(payload="1"), **WHY)
    missing = cancel(conn, one, **WHY)
    assert "no such row" in missing.refused[0].why


def test_an_older_schema_is_named_with_the_command(conn: Conn) -> None:
    for call in (
        lambda: cancel(conn, Selection(ids=(1,)), schema="nowhere", **WHY),
        lambda: preview(conn, Action.CANCEL, Selection(destination="a"), schema="nowhere"),
        lambda: list_audit(conn, "nowhere"),
    ):
        with pytest.raises(SchemaError, match=r"needs schema version 6.*migrate up"):
            call()


def test_a_hostile_search_path_subverts_nothing(conn: Conn) -> None:
    (row,) = insert(conn)
    conn.execute(
        """
        create schema evil;
        create function evil.eq(text, text) returns boolean language sql as 'select 1 / 0 = 1';
        create operator evil.= (function = evil.eq, leftarg = text, rightarg = text);
        create operator evil.<> (function = evil.eq, leftarg = text, rightarg = text);
        create function evil.now() returns timestamptz language sql as 'select null::timestamptz';
        create function evil.sha256(bytea) returns bytea language sql as 'select ''''::bytea';
        create table evil.app_outbox_audit (nothing integer);
        set search_path = evil, pg_catalog, public
        """
    )
    try:
        conn.execute("select public.outbox_cancel_message(%s, 'a test')", [row])
    finally:
        conn.execute("reset search_path")
        conn.execute("drop schema evil cascade")
    assert [entry.action_name for entry in entries(conn)] == ["cancel"]


def test_a_direct_update_by_the_owner_keeps_the_side_tables_right(conn: Conn) -> None:
    """It is possible, in any state and direction, and no action: it leaves no entry."""
    rows = insert(conn, 3) + insert(conn, 2, ordering_key="k")
    fail(conn, rows[1], rows[4])
    for statement in (
        "destination = 'invoices'",
        "destination = 'invoices', next_run_at = now() + interval '1 h'",
        "ordering_key = case when outbox_id % 2 = 0 then 'other' end",
        "status = 'FAILED', last_error_code = 'BY_HAND'",
        "status = 'SENT', sent_at = now()",
        "destination = 'orders'",
        "status = 'PENDING', next_run_at = now()",
        "status = 'CANCELLED'",
        "headers = '{}', payload_json = '1'",
    ):
        conn.execute(f"update app_outbox set {statement}")
        assert faults(conn) == {}, statement
    assert entries(conn) == []
