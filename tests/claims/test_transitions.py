"""What each statement really does to a row of each status is what the table of transitions says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge.lifecycle import TRANSITIONS, ErrorCode, Status
from bridge.relay.batch import Batch
from tests.claims.outbox import insert

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.claims.desk import Desk

Conn = psycopg.Connection[Any]

CLAIM_ID = "00000000-0000-4000-8000-000000000001"

Work = tuple[str, "Callable[[Desk, Batch], Any]"]


def _reconcile(desk: Desk, batch: Batch) -> None:
    desk.session.connection.execute("delete from app_outbox_claim")
    desk.session.run(
        "reconcile_claims",
        {
            "first_id": batch.rows[0][0],
            "last_id": batch.rows[0][0],
            "error_code": ErrorCode.STUCK_PROCESSING,
            "error_message": "because",
        },
    )


STATEMENTS: dict[str, tuple[set[str], Callable[[Desk, Batch], Any]]] = {
    "claim_rows": ({"claim"}, lambda desk, _: desk.claim()),
    "claim_rows_skipping": ({"claim"}, lambda desk, _: desk.claim(statement="claim_rows_skipping")),
    "settle_sent": ({"ack", "late ack"}, lambda desk, batch: desk.settle(batch)),
    "settle_failed, later": ({"transient error"}, lambda desk, batch: desk.fail(batch)),
    "settle_failed, final": ({"refused"}, lambda desk, batch: desk.fail(batch, final=True)),
    "release_rows": ({"release"}, lambda desk, batch: desk.release(batch)),
    "rescue_claim": ({"rescue"}, lambda desk, batch: desk.rescue(batch)),
    "reconcile_claims": ({"rescue"}, _reconcile),
}


@pytest.mark.parametrize("source", Status)
@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_makes_its_transitions_and_no_other(
    conn: Conn, desk: Desk, name: str, source: Status
) -> None:
    names, work = STATEMENTS[name]
    expected = [t for t in TRANSITIONS if t.name in names and t.source is source]
    (row,) = insert(conn)
    conn.execute(
        "update app_outbox set status = %s, claim_id = %s, claim_count = 1 where outbox_id = %s",
        [source, CLAIM_ID, row],
    )
    conn.execute(
        "insert into app_outbox_claim (claim_id, relay_id, outbox_ids) values (%s, 0, %s)",
        [CLAIM_ID, [row]],
    )
    work(desk, Batch(CLAIM_ID, [(row, "orders", *[None] * 11)]))  # type: ignore[list-item]  # its id is enough
    after = conn.execute(
        "select status, claim_id::text, retry_count from app_outbox where outbox_id = %s", [row]
    ).fetchone()
    assert after is not None
    status, claim_id, charged = after
    if not expected:
        assert (status, claim_id, charged) == (source, CLAIM_ID, 0)
        return
    (transition,) = expected
    assert status == transition.target
    assert charged == transition.charged
    claims = {"kept": claim_id == CLAIM_ID, "none": claim_id is None}
    claims["fresh"] = not any(claims.values())
    assert claims[transition.claim]


@pytest.mark.parametrize("source", Status)
def test_an_ordered_claim_makes_its_transition_and_no_other(
    conn: Conn, desk: Desk, source: Status
) -> None:
    desk.take_all_lanes()
    (row,) = insert(conn, ordering_key="k")
    conn.execute("update app_outbox set status = %s", [source])
    claimed = [found[0] for found in desk.claim_ordered().rows]
    assert claimed == ([row] if source is Status.PENDING else [])
