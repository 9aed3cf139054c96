"""A few rounds of the chaos suite, one for each kind of fault; `make chaos` plays all, for longer.

A failure names its seed: `make chaos SEED=… ROUND=…` of the long form draws other rounds, so here
`OUTBOX_BRIDGE_TEST_SEED=… make test ARGS="-k test_chaos"` repeats it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.crash.chaos.faults import BY_NAME
from tests.crash.chaos.report import describe_round
from tests.crash.chaos.rounds import play

if TYPE_CHECKING:
    from tests.crash.chaos.stage import Stage

SEED = int(os.environ.get("OUTBOX_BRIDGE_TEST_SEED") or 7)
FAULTS = (
    "relay killed",
    "relay frozen",
    "PostgreSQL restarted, immediate",
    "one Kafka node killed",
    "Kafka black hole, all nodes",
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_is_lost_doubled_or_out_of_order(stage: Stage, fault: str) -> None:
    outcome = play(stage, SEED, FAULTS.index(fault) + 1, BY_NAME[fault])

    print(describe_round(outcome))
    assert outcome.reckoning.problems == [], f"repeat with OUTBOX_BRIDGE_TEST_SEED={SEED}"
    assert outcome.reckoning.rows > 100
