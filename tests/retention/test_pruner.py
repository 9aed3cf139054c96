"""What is done with goes after its time, in small steps; everything else stays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge.lifecycle import Status
from bridge.monitor import snapshot
from bridge.relay.pruner import Pruned
from tests.retention.conftest import DAY, Conn, ids

if TYPE_CHECKING:
    from bridge.database.session import Session
    from bridge.relay.pruner import Pruner
    from tests.retention.conftest import AddFunction, MakePrunerFunction


def round_of(pruner: Pruner) -> int:
    """Do a whole round as the maintenance does; returns its steps."""
    steps = 1
    while pruner.go_on() is not None:
        steps += 1
    return steps


def counted(conn: Conn) -> dict[Status, int]:
    return {status: rows for status, rows in snapshot(conn).counts.items() if rows}


def test_only_rows_at_their_end_go_and_only_after_their_time(
    conn: Conn, add: AddFunction, make_pruner: MakePrunerFunction
) -> None:
    for status in ("SENT", "CANCELLED"):
        add(status, days=8)
    kept = [
        *add("SENT", days=6),
        *add("CANCELLED", days=6),
        *add("PENDING", days=400),
        *add("PROCESSING", days=400),
        *add("FAILED", days=400),
    ]
    assert make_pruner().run() == Pruned(sent=1, cancelled=1)
    assert ids(conn) == kept
    assert make_pruner(failed=399 * DAY).run() == Pruned(failed=1)
    assert make_pruner(sent=None).run() == Pruned()
    assert make_pruner(sent=5 * DAY).run() == Pruned(sent=1, cancelled=1)
    assert ids(conn) == kept[2:4]


def test_time_counts_from_the_end_and_not_from_the_enqueueing(
    conn: Conn, add: AddFunction, make_pruner: MakePrunerFunction
) -> None:
    """A message that waited through a long outage is kept for as long as any other."""
    (late,) = add("SENT", days=400)
    conn.execute("update app_outbox set sent_at = now()")
    assert make_pruner().run() == Pruned()
    assert ids(conn) == [late]


def test_counts_are_what_stands_in_the_table(
    conn: Conn, add: AddFunction, make_pruner: MakePrunerFunction
) -> None:
    add("SENT", days=8, count=30)
    add("FAILED", days=8, count=5)
    add("CANCELLED", days=8, count=3)
    add("SENT", days=1, count=4)
    assert counted(conn) == {Status.SENT: 34, Status.FAILED: 5, Status.CANCELLED: 3}
    make_pruner(failed=DAY, batch_rows=7).run()
    assert counted(conn) == {Status.SENT: 4}
    assert conn.execute("select count(*) from app_outbox_failed").fetchone() == (0,)


def test_a_pruned_key_is_new_again(
    conn: Conn, add: AddFunction, make_pruner: MakePrunerFunction
) -> None:
    add("SENT", days=8)
    (key,) = conn.execute("select message_key from app_outbox").fetchone() or ("",)
    make_pruner().run()
    again = conn.execute("select created from outbox_enqueue(%s, 'e', 'd', '1')", [key]).fetchone()
    assert again == (True,)


def test_locked_rows_are_left_for_the_next_round(
    conn: Conn, database_url: str, add: AddFunction, make_pruner: MakePrunerFunction
) -> None:
    rows = add("SENT", days=8, count=20)
    with psycopg.connect(database_url) as person:
        person.execute("select from app_outbox where outbox_id = %s for update", [rows[3]])
        assert make_pruner().run() == Pruned(sent=19)
        assert ids(conn) == [rows[3]]
        person.rollback()
    assert make_pruner().run() == Pruned(sent=1)


def test_a_row_replayed_between_look_and_lock_stays(
    conn: Conn,
    session: Session,
    add: AddFunction,
    make_pruner: MakePrunerFunction,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replayed, sent_again, gone = add("SENT", days=8, count=3)
    rows = session.rows

    def look(name: str, parameters: Any = None) -> list[Any]:
        found = rows(name, parameters)
        if name == "find_prunable":
            conn.execute(
                "update app_outbox set status = 'PENDING', claim_id = null where outbox_id = %s",
                [replayed],
            )
            conn.execute("update app_outbox set sent_at = now() where outbox_id = %s", [sent_again])
        return found

    monkeypatch.setattr(session, "rows", look)
    assert make_pruner().run() == Pruned(sent=1)
    assert ids(conn) == [replayed, sent_again]
    assert gone not in ids(conn)


def test_rounds_begin_at_the_first_row_that_time_alone_will_make_prunable(
    conn: Conn, add: AddFunction, make_pruner: MakePrunerFunction
) -> None:
    kept = add("FAILED", days=30, count=50)
    add("SENT", days=8, count=25)
    young = add("SENT", days=1, count=50)
    pruner = make_pruner(batch_rows=10)
    assert round_of(pruner) > 7
    assert ids(conn) == kept + young
    # The kept ones are not looked at again: one step, or two where the last one was mixed.
    assert round_of(pruner) <= 2
    conn.execute(
        "update app_outbox set sent_at = now() - interval '8 days', "
        "created_at = now() - interval '8 days' where outbox_id = %s",
        [young[0]],
    )
    round_of(pruner)
    assert ids(conn) == kept + young[1:]


def test_what_lies_behind_is_found_once_a_day(
    conn: Conn, add: AddFunction, make_pruner: MakePrunerFunction, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = add("FAILED", days=30, count=50)
    add("SENT", days=8, count=25)
    pruner = make_pruner(batch_rows=10)
    round_of(pruner)
    conn.execute(
        "update app_outbox set status = 'CANCELLED', updated_at = now() - interval '8 days' "
        "where outbox_id = any(%s)",
        [kept[:5]],
    )
    round_of(pruner)
    assert ids(conn) == kept
    monkeypatch.setattr(pruner, "_next_walk", 0.0)
    round_of(pruner)
    assert ids(conn) == kept[5:]


def test_one_row_dated_into_the_future_does_not_end_retention(
    conn: Conn, add: AddFunction, make_pruner: MakePrunerFunction
) -> None:
    (odd,) = add("SENT", days=-36_500)
    pruner = make_pruner(batch_rows=10)
    for _ in range(3):
        add("SENT", days=8, count=25)
        round_of(pruner)
        assert ids(conn) == [odd]


def test_pruning_takes_a_tenth_of_the_time(
    add: AddFunction, make_pruner: MakePrunerFunction
) -> None:
    add("SENT", days=8, count=100)
    pause = make_pruner(batch_rows=10).go_on()
    assert pause is not None
    assert pause >= 0.02


def test_the_function_deletes_nothing_that_is_still_to_be_sent(
    conn: Conn, add: AddFunction
) -> None:
    rows = [*add("PENDING", days=9), *add("PROCESSING", days=9)]
    sent = add("SENT", days=9)
    pruned = conn.execute("select app_outbox_prune(%s, false)", [rows + sent]).fetchone()
    assert pruned == (1,)
    assert ids(conn) == rows


def test_counters_of_long_ago_become_one_and_no_total_changes(
    conn: Conn, add: AddFunction, make_pruner: MakePrunerFunction
) -> None:
    add("SENT", days=1, count=3)
    conn.execute(
        "insert into app_outbox_counter (destination, status, delta, counted_at) "
        "select d, s, 2, now() - n * interval '1 day' "
        "from unnest(array['a', 'b']) as d, unnest(array['SENT', 'CANCELLED']) as s, "
        "generate_series(80, 120) as n"
    )
    before = counted(conn)
    for _ in range(2):
        make_pruner().tidy()
        assert counted(conn) == before
    old = conn.execute(
        "select count(*) from app_outbox_counter where counted_at < now() - interval '90 days'"
    ).fetchone()
    assert old == (4,)


def test_the_oldest_audit_entries_go_and_an_entry_says_so(
    conn: Conn, make_pruner: MakePrunerFunction
) -> None:
    conn.execute(
        "insert into app_outbox_audit (action_name, reason, changed_by, source, changed_at) "
        "select 'cancel', 'why', 'me', 'sql', now() - n * interval '1 day' "
        "from unnest(array[100, 95, 10, 99, 1]) as n"
    )
    assert make_pruner().prune_audit() == 0
    pruner = make_pruner(audit=90 * DAY)
    assert pruner.prune_audit() == 2
    entries = conn.execute(
        "select audit_id, action_name, before_state from app_outbox_audit order by audit_id"
    ).fetchall()
    # What stays has no gap: an old entry behind a younger one waits for it.
    assert [entry[0] for entry in entries] == [3, 4, 5, 6]
    assert entries[-1][1:] == (
        "prune audit",
        {"first_audit_id": 1, "last_audit_id": 2, "entries": 2},
    )
    assert pruner.prune_audit() == 0
    for statement in ("delete from app_outbox_audit", "truncate app_outbox_audit"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="append-only"):
            conn.execute(statement.encode())
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="at least 30 days"):
        conn.execute("select app_outbox_prune_audit(29)")


def test_rows_still_under_way_when_they_are_old_enough_are_not_left_behind(
    conn: Conn, add: AddFunction, make_pruner: MakePrunerFunction
) -> None:
    rows = add("PROCESSING", days=7.1, count=5)
    pruner = make_pruner()
    round_of(pruner)
    conn.execute("update app_outbox set status = 'SENT', sent_at = now() - interval '8 days'")
    round_of(pruner)
    assert rows != []
    assert ids(conn) == []
