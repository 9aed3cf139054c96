"""The console's lists never scan the outbox, whatever the statistics say."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from bridge.console.connections import ReadConnections
from bridge.inspection import MAX_ID
from bridge.settings import load_settings
from tests.plans.explain import explain, indexes, pages, run_measured, walks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.plans.conftest import Stage

PKEY = "app_outbox_pkey"
NOTHING: dict[str, Any] = {
    "statuses": None,
    "destination": None,
    "event_type": None,
    "message_key": None,
    "key_pattern": None,
    "ordering_key": None,
    "error_code": None,
    "trace_pattern": None,
    "created_from": None,
    "created_to": None,
    "floor": 0,
    "before": MAX_ID,
    "window_rows": 51,
    "row_limit": 51,
}
ANY_TIME = {
    "created_from": datetime(1, 1, 1, tzinfo=UTC),
    "created_to": datetime(9999, 12, 31, tzinfo=UTC),
    "before_time": datetime(9999, 12, 31, tzinfo=UTC),
}
CASES: list[tuple[str, dict[str, Any], set[str], bool, int]] = [
    ("browse_newest", {}, {PKEY}, False, 400),
    ("browse_newest", {"window_rows": 1000, "destination": "no"}, {PKEY}, False, 4000),
    ("browse_newest", {"window_rows": 1000, "statuses": ["SENT"]}, {PKEY}, False, 4000),
    ("browse_newest", {"window_rows": 1000, "trace_pattern": "%-x-%"}, {PKEY}, False, 4000),
    (
        "browse_type",
        {**ANY_TIME, "event_type": "nothing"},
        {"app_outbox_event_type_created_at_idx"},
        False,
        50,
    ),
    ("browse_open", {"statuses": ["FAILED"]}, {PKEY}, True, 400),
    ("browse_open", {"statuses": ["PENDING"]}, {PKEY}, True, 800),
    ("browse_open", {"statuses": ["PENDING", "PROCESSING", "FAILED"]}, {PKEY}, True, 20_000),
    ("browse_key", {"message_key": "sent-7"}, {"app_outbox_message_key_key"}, False, 20),
    ("probe_created", {"from_id": 500}, {PKEY}, False, 20),
    ("read_standing", {"outbox_id": 500}, {PKEY}, False, 100),
    ("read_pulse", {}, {PKEY}, True, 200),
    ("sketch_unsent", {"row_limit": 10_001}, {PKEY}, True, 20_000),
    ("count_in_flight", {}, {PKEY}, False, 20_000),
    ("browse_holds", {"row_limit": 201}, set(), True, 100),
]
FIRST_OF_ALL = {"read_pulse", "sketch_unsent", "probe_created"}
"""Look for the first or last entry of an index: a walk that ends there."""


@pytest.fixture
def reads(stage: Stage) -> Iterator[Any]:
    """The session that a page reads in, in the shape that `explain` takes."""
    connections = ReadConnections(load_settings(None, {"database": {"url": stage.url}}))

    class Session:
        schema = "public"

    with connections.reading() as conn:
        Session.connection = conn  # type: ignore[attr-defined] # made for this
        yield Session
    connections.close()


@pytest.mark.parametrize("crowd", [100_000], indirect=True, ids=["100_000-sent"])
def test_lists_are_read_through_indexes_and_side_tables(reads: Any) -> None:
    for name, values, needs, whole_queue, most_pages in CASES:
        parameters = {**NOTHING, **values}
        plan = explain(reads, name, parameters)
        walked = walks(plan, whole_queue=whole_queue)
        if name in FIRST_OF_ALL:
            walked = [one for one in walked if not one.startswith("Index")]
        assert walked == [], (name, values, plan)
        assert needs <= indexes(plan), (name, values)
        measured = run_measured(reads, name, parameters)
        assert pages(measured) <= most_pages, (name, values, pages(measured))
