"""200,000 parked followers of one key, and 10,000 held keys, cost the statements nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge.database.arrays import array
from bridge.database.session import Session
from tests.fixtures.postgres import on_one_server
from tests.plans.explain import explain, explain_generic, indexes, pages, run_measured, walks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.postgres import PostgresServer

# The first test loads the rows, which takes a loaded machine its time.
pytestmark = pytest.mark.timeout(600)

PARKED = 200_000
HELD_KEYS = 10_000
BATCH = 500
CLAIM = "00000000-0000-4000-8000-000000000001"

_LOAD = f"""
    set session_replication_role = replica;
    insert into app_outbox (message_key, event_type, destination, ordering_key)
    select 'one-' || n, 't', 'orders', 'one' from generate_series(0, {PARKED}) as n
    union all
    select 'many-' || n || '-' || m, 't', 'orders', 'many-' || n
    from generate_series(1, {HELD_KEYS}) as n, generate_series(0, 1) as m;
    insert into app_outbox_hold
        (destination, ordering_key, outbox_id, key_hash, lane, boundary, error_code)
    select destination, ordering_key, min(outbox_id), hashtext(ordering_key),
        hashtext(ordering_key) & 63, min(outbox_id), 'UNKNOWN'
    from app_outbox group by 1, 2;
    insert into app_outbox_queue (outbox_id, destination, next_run_at, lane, key_hash, parked)
    select o.outbox_id, o.destination, o.next_run_at, h.lane, h.key_hash, 'k'
    from app_outbox as o
    inner join app_outbox_hold as h using (destination, ordering_key)
    where o.outbox_id > h.outbox_id;
    set session_replication_role = origin;
    insert into app_outbox (message_key, event_type, destination, ordering_key)
    select 'free-' || n, 't', 'orders', 'free-' || n % 50 from generate_series(1, {BATCH}) as n;
    insert into app_outbox (message_key, event_type, destination)
    select 'claimed-' || n, 't', 'orders' from generate_series(1, {BATCH}) as n;
    update app_outbox_lane set relay_id = 1;
    update app_outbox set status = 'PROCESSING', claim_id = '{CLAIM}'
    where message_key like 'claimed-%';
    delete from app_outbox_queue where lane is null;
    insert into app_outbox_claim (claim_id, relay_id, outbox_ids)
    select '{CLAIM}', 1, array_agg(outbox_id) from app_outbox where status = 'PROCESSING';
"""

INDEXES = {
    "claim_ordered": {"app_outbox_queue_lane_idx", "app_outbox_hold_boundary_idx"},
    "claim_suspect": {"app_outbox_queue_alone_idx"},
    "settle_sent": {"app_outbox_pkey", "app_outbox_hold_outbox_id_idx"},
    "lock_failures": {"app_outbox_pkey", "app_outbox_hold_pkey"},
    "place_holds": {"app_outbox_pkey", "app_outbox_hold_outbox_id_idx"},
    "release_holds": {"app_outbox_hold_outbox_id_idx"},
    "check_holds": {"app_outbox_hold_outbox_id_idx"},
    "return_followers": {"app_outbox_hold_released_idx", "app_outbox_queue_parked_idx"},
    "find_destinations": {"app_outbox_queue_lane_idx"},
    "count_deaths": {"app_outbox_pkey"},
}

ROWS = {"claim_suspect": 1, "return_followers": 1, "find_destinations": 2, "release_holds": BATCH}
"""How many rows a statement finds here; else a batch."""


@dataclass
class Stage:
    session: Session
    claimed: list[int]


@pytest.fixture(scope="module")
def url(postgres: PostgresServer) -> Iterator[str]:
    created = postgres.create_database(postgres.migrated_template())
    with psycopg.connect(created, autocommit=True) as conn:
        for table in ("app_outbox", "app_outbox_queue", "app_outbox_hold"):
            conn.execute(f"alter table {table} set (autovacuum_enabled = false)")
        conn.execute(_LOAD.encode())
    yield created
    postgres.drop_database(created)


@pytest.fixture(scope="module", params=["never analyzed", "analyzed"])
def stage(request: pytest.FixtureRequest, url: str) -> Iterator[Stage]:
    with psycopg.connect(url, autocommit=True) as conn:
        if request.param == "analyzed":
            conn.execute("vacuum analyze")
        query = "select outbox_id from app_outbox where status = 'PROCESSING' order by 1"
        claimed = [row[0] for row in conn.execute(query)]
    session = Session(url, schema="public", stage="plans", relay_name="plans", lock_timeout=5)
    session.open()
    yield Stage(session, claimed)
    session.close()


def parameters(stage: Stage) -> dict[str, Any]:
    return {
        "destinations": ["orders"],
        "quotas": array([1000]),
        "lanes": array(range(64)),
        "lane_quota": 1000,
        "batch_rows": 1000,
        "shut": [],
        "most_deaths": 2,
        "relay_id": 1,
        "relay_name": "plans",
        "inline_bytes": 65536,
        "claim_id": CLAIM,
        "outbox_ids": array(stage.claimed),
        "claim_numbers": array([1] * len(stage.claimed)),
        "claim_ids": [CLAIM],
        "finished_claims": [CLAIM],
        "partitions": array([1] * len(stage.claimed)),
        "offsets": array(range(len(stage.claimed))),
        "routed_destinations": [],
        "routed_topics": [],
        "after_id": 0,
        "row_limit": BATCH,
        "step": 2000,
        "key_step": 500,
        "hold_limit": 200,
        "max_claims": 10,
        "error_code": "POISON",
        "held_code": "STUCK_PROCESSING",
    }


@on_one_server
@pytest.mark.parametrize("name", INDEXES)
@pytest.mark.parametrize("explained", [explain, explain_generic], ids=["values", "generic"])
def test_holds_and_followers_are_found_by_index(stage: Stage, name: str, explained: Any) -> None:
    plan = explained(stage.session, name, parameters(stage))
    assert indexes(plan) >= INDEXES[name]
    if name not in {"find_destinations", "claim_suspect"}:  # they look for the first entry
        assert walks(plan) == []


@on_one_server
@pytest.mark.parametrize("name", INDEXES)
def test_pages_touched_do_not_grow_with_what_is_held(stage: Stage, name: str) -> None:
    wanted = parameters(stage)
    if name.startswith("claim"):
        wanted["claim_id"] = "00000000-0000-4000-8000-00000000ffff"
    plan = run_measured(stage.session, name, wanted)
    assert pages(plan) <= 50 * ROWS.get(name, BATCH) + 200


@on_one_server
def test_a_step_touches_no_more_than_its_rows(stage: Stage) -> None:
    connection = stage.session.connection
    with connection.transaction(force_rollback=True):
        connection.execute("update app_outbox_hold set released_at = now()")
        plan = run_measured(stage.session, "return_followers", parameters(stage))
        assert pages(plan) <= 50 * 2000
