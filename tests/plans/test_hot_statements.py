"""The relay's statements find their rows by an index, whatever the statistics say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge.database.arrays import array
from bridge.relay.targets import BEGINNING
from tests.plans.explain import (
    explain,
    explain_generic,
    explain_view,
    indexes,
    pages,
    run_measured,
    walks,
)

if TYPE_CHECKING:
    from tests.plans.conftest import Stage

# The first test loads the rows, which takes a loaded machine its time.
pytestmark = pytest.mark.timeout(600)

PKEY = "app_outbox_pkey"
DUE = "app_outbox_queue_due_idx"
LANE = "app_outbox_queue_lane_idx"

NEEDS = {
    "claim_rows": {PKEY, DUE},
    "claim_rows_skipping": {PKEY, DUE},
    "claim_ordered": {PKEY, LANE},
    "settle_sent": {PKEY},
    "lock_rows": {PKEY},
    "find_unsettled": {PKEY},
    "lock_failures": {PKEY},
    "settle_failed": {PKEY},
    "find_claimed": {PKEY},
    "release_rows": {PKEY},
    "rescue_claim": {PKEY},
    "fetch_row": {PKEY},
    "find_destinations": {DUE, LANE},
    "reconcile_claims": {PKEY},
    "reconcile_queue": {PKEY, DUE, LANE},
    "find_id_range": {PKEY},
    "find_due": {PKEY},
    "count_later": {PKEY},
    "claim_suspect": {PKEY, "app_outbox_queue_alone_idx"},
    "return_followers": {PKEY, "app_outbox_queue_parked_idx"},
    "check_holds": {PKEY, "app_outbox_hold_outbox_id_idx"},
    "place_holds": {PKEY, "app_outbox_hold_outbox_id_idx"},
    "release_holds": {"app_outbox_hold_outbox_id_idx"},
    "count_deaths": {PKEY},
    "find_prunable": {PKEY},
    "lock_prunable": {PKEY},
    "read_prunable": {PKEY},
}
"""Statements, and the indexes that their headers promise."""

FIRST_ROW_SCANS = ("Index Only Scan", "Index Scan on app_outbox_queue app_outbox_queue_alone_idx")

WHOLE_QUEUE = {"find_due", "count_later"}
"""Asked only when a claim found nothing, and at the end of a run."""

FIRST_ROW = {"find_id_range", "find_destinations", "claim_suspect"}
"""Look for the first entry of an index, too: a walk that ends there."""

ROWS = {
    "claim_rows": 1000,
    "claim_rows_skipping": 1000,
    "claim_ordered": 200,
    "settle_sent": 2000,
    "lock_rows": 2000,
    "find_unsettled": 2000,
    "find_claimed": 2000,
    "lock_failures": 2000,
    "settle_failed": 2000,
    "release_rows": 2000,
    "rescue_claim": 1000,
    "find_destinations": 5,
    "count_later": 1,
    "fetch_row": 1,
    "claim_suspect": 1,
    "return_followers": 64,
    "check_holds": 1,
    "place_holds": 2000,
    "release_holds": 2000,
    "count_deaths": 1000,
    "find_prunable": 1000,
    "lock_prunable": 2000,
}
"""How many rows a statement finds here."""

PAGES_PER_ROW = 40
"""Index, heap and new versions of row and entry; a walk over 1,000,000 rows touches 1,000,000."""


def parameters(stage: Stage) -> dict[str, Any]:
    claimed = len(stage.claimed)
    return {
        "destinations": ["orders", "invoices", "nothing"],
        "after_times": [BEGINNING, 0, BEGINNING],
        "after_ids": [BEGINNING, 0, 0],
        "quotas": [1000, 1000, 1000],
        "batch_rows": 1000,
        "lanes": list(range(64)),
        "lane_quota": 100,
        "shut": ["closed"],
        "most_deaths": 2,
        "row_limit": 500,
        "step": 2000,
        "key_step": 500,
        "hold_limit": 200,
        "max_claims": 10,
        "held_code": "STUCK_PROCESSING",
        "relay_id": 1,
        "relay_name": "plans",
        "inline_bytes": 65536,
        "claim_id": stage.claims[0],
        "outbox_id": stage.claimed[0],
        "outbox_ids": array(stage.claimed),
        "claim_numbers": array([1] * (claimed // 2) + [2] * (claimed // 2)),
        "claim_ids": stage.claims,
        "uncounted": 1,
        "finished_claims": stage.claims,
        "partitions": array([1] * claimed),
        "offsets": array(range(claimed)),
        "routed_destinations": ["orders"],
        "routed_topics": ["shop.orders"],
        "statuses": ["PENDING"] * claimed,
        "charges": [1] * claimed,
        "delays": [60.0] * claimed,
        "error_codes": ["X"] * claimed,
        "error_messages": ["because"] * claimed,
        "error_code": "STUCK_PROCESSING",
        "error_message": "because",
        "first_id": stage.pending[0] - 500,
        "last_id": stage.pending[0] + 500,
        "from_id": 1,
        "closed": False,
        "exceptions": ["elsewhere"],
        "after_id": stage.pending[0] - 1000,
        "step_rows": 1000,
        "sent_seconds": 7 * 86400.0,
        "failed_seconds": 365 * 86400.0,
    }


@pytest.mark.parametrize("name", NEEDS)
@pytest.mark.parametrize("explained", [explain, explain_generic], ids=["values", "generic"])
def test_rows_are_found_by_index(stage: Stage, name: str, explained: Any) -> None:
    plan = explained(stage.session, name, parameters(stage))
    assert indexes(plan) >= NEEDS[name]
    found = walks(plan, whole_queue=name in WHOLE_QUEUE)
    if name in FIRST_ROW:
        assert all(scan.startswith(FIRST_ROW_SCANS) for scan in found)
    else:
        assert found == []


@pytest.mark.parametrize("name", ROWS)
def test_pages_touched_do_not_grow_with_the_sent_rows(stage: Stage, name: str) -> None:
    wanted = parameters(stage)
    if name.startswith("claim"):
        wanted["claim_id"] = "00000000-0000-4000-8000-00000000ffff"
    plan = run_measured(stage.session, name, wanted)
    assert pages(plan) <= PAGES_PER_ROW * ROWS[name] + 100


VIEWS = (
    "outbox_by_status",
    "outbox_by_destination",
    "outbox_unsent",
    "outbox_oldest_unsent",
    "outbox_near_retry_limit",
    "outbox_stuck",
    "outbox_by_error",
    "outbox_held_keys",
    "outbox_relays",
    "outbox_breakers",
    "outbox_throughput",
    "outbox_throughput_by_destination",
)
"""Read by anybody, so with the server's own planner settings."""

UNSENT = 3750
"""Rows that the stage has open."""


def test_views_look_rows_up_by_key_and_never_scan_the_outbox(stage: Stage) -> None:
    with psycopg.connect(stage.url, autocommit=True) as reader:
        for view in VIEWS:
            assert walks(explain_view(reader, view), whole_queue=True) == [], view
            measured = explain_view(reader, view, measured=True)
            assert pages(measured) <= 12 * UNSENT + 500, view
