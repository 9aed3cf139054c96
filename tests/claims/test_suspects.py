"""Rows with which relays die: claimed alone from the third time on, FAILED as POISON in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge.lifecycle import ErrorCode
from tests.claims.desk import ids
from tests.claims.outbox import count, faults, insert, state, states

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.relay.batch import Batch
    from tests.claims.conftest import OpenDesk
    from tests.claims.desk import Desk

Conn = psycopg.Connection[Any]

ALL: dict[str, Any] = {"exceptions": [], "closed": False}
"""No destination is closed by a switch."""


@pytest.fixture
def rescuer(open_desk: OpenDesk) -> Desk:
    """The relay that survives."""
    return open_desk("rescues", max_claims=3)


def die(conn: Conn, rescuer: Desk) -> None:
    """Let every claim be that of a relay which is gone, and be rescued."""
    conn.execute("update app_outbox_claim set relay_id = -1")
    rescuer.rescuer._free_since[-1] = float("-inf")
    rescuer.rescuer.rescue()
    assert count(conn, "app_outbox_claim") == 0


def deaths(conn: Conn) -> list[tuple[int, int, int]]:
    query = "select outbox_id, deaths, lone_deaths from app_outbox_suspect order by 1"
    return conn.execute(query).fetchall()


def test_from_the_third_time_on_a_row_is_claimed_alone(conn: Conn, rescuer: Desk) -> None:
    rows = insert(conn, 3)
    for _ in range(2):
        assert ids(rescuer.claim()) == rows
        die(conn, rescuer)
    assert deaths(conn) == [(row, 2, 0) for row in rows]
    fresh = insert(conn, 2)
    assert ids(rescuer.claim()) == fresh
    batch = rescuer.claim_suspect()
    assert ids(batch) == rows[:1]
    assert rescuer.settle(batch) == 1
    assert [row for row, _, _ in deaths(conn)] == rows[1:]
    assert [ids(rescuer.claim_suspect()) for _ in range(3)] == [[rows[1]], [rows[2]], []]
    assert faults(conn) == {}


def test_a_row_that_is_sent_after_one_death_is_forgotten(conn: Conn, rescuer: Desk) -> None:
    insert(conn, 2)
    rescuer.claim()
    die(conn, rescuer)
    rescuer.settle(rescuer.claim())
    assert deaths(conn) == []


def test_too_many_lone_deaths_fail_the_row_as_poison(conn: Conn, rescuer: Desk) -> None:
    rows = insert(conn, 2)
    for _ in range(2):
        rescuer.claim()
        die(conn, rescuer)
    for _ in range(4):
        assert ids(rescuer.claim_suspect()) == rows[:1]
        die(conn, rescuer)
    row = conn.execute(
        "select status, last_error_code, last_error_msg, retry_count, locked_by from app_outbox "
        "where outbox_id = %s",
        [rows[0]],
    ).fetchone()
    assert row is not None
    assert row[:2] == ("FAILED", ErrorCode.POISON)
    assert "6 times while it had this row, 3 of them while it was claimed alone" in row[2]
    assert row[3:] == (0, None)
    assert state(conn, rows[1]) == "PENDING"
    assert faults(conn) == {}


def test_a_retried_poison_row_stays_alone_and_has_its_chances_anew(
    conn: Conn, rescuer: Desk
) -> None:
    (row,) = insert(conn)
    claims: list[Callable[[], Batch]] = [rescuer.claim] * 2 + [rescuer.claim_suspect] * 4
    for claim in claims:
        assert ids(claim()) == [row]
        die(conn, rescuer)
    assert state(conn, row) == "FAILED"
    conn.execute("update app_outbox set status = 'PENDING'")
    assert deaths(conn) == [(row, 6, 0)]
    assert ids(rescuer.claim()) == []
    assert ids(rescuer.claim_suspect()) == [row]


def test_followers_of_a_suspect_wait_and_suspects_of_a_key_go_in_order(
    conn: Conn, rescuer: Desk
) -> None:
    rescuer.take_all_lanes()
    rows = insert(conn, 3, ordering_key="k")
    for _ in range(2):
        assert ids(rescuer.claim_ordered()) == rows
        die(conn, rescuer)
    followers = insert(conn, 2, ordering_key="k")
    assert ids(rescuer.claim_ordered()) == []
    for row in rows:
        batch = rescuer.claim_suspect()
        assert ids(batch) == [row]
        assert ids(rescuer.claim_suspect()) == []
        assert rescuer.return_followers() == 0
        rescuer.settle(batch)
        rescuer.return_followers(1)
    assert ids(rescuer.claim_ordered()) == followers
    assert count(conn, "app_outbox_hold") == 0
    assert faults(conn) == {}


def test_an_earlier_row_of_the_key_goes_before_a_suspect(conn: Conn, rescuer: Desk) -> None:
    rescuer.take_all_lanes()
    (early,) = insert(conn, ordering_key="k", next_run_at="now() + interval '1 hour'")
    (suspect,) = insert(conn, ordering_key="k")
    for _ in range(2):
        rescuer.claim_ordered()
        die(conn, rescuer)
    conn.execute("update app_outbox set next_run_at = now() where outbox_id = %s", [early])
    assert ids(rescuer.claim_suspect()) == []
    assert ids(rescuer.claim_ordered()) == [early]
    assert ids(rescuer.claim_suspect()) == [suspect]


def test_an_ordered_suspect_is_left_to_the_owner_of_its_lane(
    conn: Conn, open_desk: OpenDesk, rescuer: Desk
) -> None:
    rescuer.take_all_lanes()
    rows = insert(conn, ordering_key="k")
    for _ in range(2):
        rescuer.claim_ordered()
        die(conn, rescuer)
    other = open_desk("other")
    assert ids(other.claim_suspect()) == []
    assert ids(rescuer.claim_suspect(lanes=[])) == []
    assert ids(rescuer.claim_suspect()) == rows


@pytest.mark.parametrize("policy", ["block", "skip"])
def test_a_poison_row_holds_its_key_as_any_failed_one(
    conn: Conn, rescuer: Desk, policy: str
) -> None:
    rescuer.rescuer._router = rescuer.settings.model_validate(
        {"routes": [{"destination": "*", "on_failure": policy}]}
    ).router()
    rescuer.take_all_lanes()
    (row,) = insert(conn, ordering_key="k")
    claims: list[Callable[[], Batch]] = [rescuer.claim_ordered] * 2 + [rescuer.claim_suspect] * 4
    for claim in claims:
        assert ids(claim()) == [row]
        die(conn, rescuer)
    assert state(conn, row) == "FAILED"
    followers = insert(conn, 2, ordering_key="k")
    rescuer.return_followers()
    assert ids(rescuer.claim_ordered()) == (followers if policy == "skip" else [])


def test_what_a_relay_gives_back_itself_does_not_count(conn: Conn, rescuer: Desk) -> None:
    insert(conn, 2)
    rescuer.rescue(rescuer.claim())
    rescuer.release(rescuer.claim())
    assert deaths(conn) == []


def test_a_relay_that_was_stopping_does_not_count(conn: Conn, rescuer: Desk) -> None:
    insert(conn, 2)
    rescuer.claim()
    (gone,) = conn.execute(
        "insert into app_outbox_relay (relay_name, host, pid, version, lease_seconds, stopping) "
        "values ('gone', 'h', 1, 'v', 1, true) returning relay_id"
    ).fetchall()[0]
    conn.execute("update app_outbox_claim set relay_id = %s", [gone])
    rescuer.rescuer._free_since[gone] = float("-inf")
    rescuer.rescuer.rescue()
    assert states(conn) == {"PENDING": 2}
    assert deaths(conn) == []


def test_claims_from_before_a_restart_or_failover_of_the_server_do_not_count(
    conn: Conn, rescuer: Desk
) -> None:
    insert(conn, 2)
    rescuer.claim()
    conn.execute(
        "update app_outbox_claim set server_started_at = server_started_at - interval '1 s'"
    )
    die(conn, rescuer)
    assert states(conn) == {"PENDING": 2}
    assert deaths(conn) == []


def test_a_hung_claim_counts(conn: Conn, open_desk: OpenDesk) -> None:
    desk = open_desk(stuck_timeout=300)
    rows = insert(conn, 2)
    desk.claim()
    conn.execute("update app_outbox_claim set claimed_at = claimed_at - interval '301 s'")
    desk.rescuer.rescue()
    assert deaths(conn) == [(row, 1, 0) for row in rows]


def test_rows_with_which_a_third_relay_died_are_a_relays_only_suspect(
    conn: Conn, rescuer: Desk
) -> None:
    rows = insert(conn, 30)
    conn.execute(
        "insert into app_outbox_suspect (outbox_id, deaths) "
        "select outbox_id, case when outbox_id = any(%s) then 3 else 2 end from app_outbox",
        [rows[:2]],
    )
    conn.execute("update app_outbox set next_run_at = next_run_at - interval '1 s'")
    conn.execute("delete from app_outbox_queue where parked is null")
    rescuer.claimer._search(force=True)
    found = []
    for _ in range(4):
        found.append(rescuer._looked(rescuer.claimer._look_alone))
        assert rescuer._looked(rescuer.claimer._look_alone) == []
        assert all(len(batch.rows) == 1 for batch in rescuer.flight.batches())
        rescuer.claimer._ordered._next_alone = 0.0
        rescuer.settle_all()
    assert [row for look in found for row in look] == rows[2:] + rows[:2]
    assert [len(look) for look in found] == [16, 12, 1, 1]


def test_a_closed_destinations_suspect_waits(conn: Conn, rescuer: Desk) -> None:
    rows = insert(conn, 1)
    for _ in range(2):
        rescuer.claim()
        die(conn, rescuer)
    assert ids(rescuer.claim_suspect(closed=["orders"])) == []
    assert ids(rescuer.claim_suspect(closed=["invoices"])) == rows


@pytest.mark.parametrize(
    "statement",
    ["delete from app_outbox", "update app_outbox set status = 'CANCELLED'", "truncate app_outbox"],
)
def test_a_suspect_that_is_gone_is_forgotten(conn: Conn, rescuer: Desk, statement: str) -> None:
    insert(conn, 2)
    for _ in range(2):
        rescuer.claim()
        die(conn, rescuer)
    conn.execute(statement.encode())
    assert deaths(conn) == []
    rescuer.reconciler.reconcile()
    assert count(conn, "app_outbox_queue") == 0


def test_a_suspect_behind_a_failed_head_is_not_due(conn: Conn, rescuer: Desk) -> None:
    """A run that ends when nothing is due must not wait for it."""
    rescuer.take_all_lanes()
    (head,) = insert(conn, ordering_key="k")
    (suspect,) = insert(conn, ordering_key="k")
    for _ in range(2):
        rescuer.claim_ordered()
        die(conn, rescuer)
    assert rescuer.session.value("find_due", ALL)
    rescuer.fail(rescuer.claim_suspect(), final=True)
    assert ids(rescuer.claim_suspect()) == []
    assert not rescuer.session.value("find_due", ALL)
    conn.execute("update app_outbox set status = 'CANCELLED' where outbox_id = %s", [head])
    assert rescuer.session.value("find_due", ALL)
    rescuer.return_followers()
    assert ids(rescuer.claim_suspect()) == [suspect]
