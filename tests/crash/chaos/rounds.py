"""One round: relays, writers, a fault, its healing, quiet, the reckoning."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.crash.chaos.faults import FAULTS, Fault, Scene
from tests.crash.chaos.ledger import Ledger
from tests.crash.chaos.reckoning import Reckoning, reckon
from tests.crash.chaos.watch import Watch
from tests.crash.chaos.writers import Writers
from tests.fixtures.kafka import read_topic
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.crash.chaos.stage import Stage

QUIET_SECONDS = 60.0
"""How long after the last write nothing may be due or in flight any more."""
_FLOW_ROWS = 100
_TOPICS = ("orders", "payments", "audit")


@dataclass(frozen=True)
class Outcome:
    """What one round of one fault came to."""

    number: int
    fault: Fault
    reckoning: Reckoning


def chosen(seed: int, faults: Sequence[Fault] = FAULTS) -> Iterator[tuple[int, Fault]]:
    """Yield rounds for ever: every fault once in each turn, in an order that the seed tells."""
    number = 0
    while True:
        deck = list(faults)
        _dice(seed, f"deck {number}").shuffle(deck)
        for fault in deck:
            number += 1
            yield number, fault


def _dice(seed: int, what: str) -> Random:
    return Random(f"{seed}/{what}")  # noqa: S311 - chaos that can be repeated, no secret


def play(stage: Stage, seed: int, number: int, fault: Fault) -> Outcome:
    """Play one round to its end; what it draws depends on seed and number alone."""
    draw = _dice(seed, f"round {number}")
    topics = [f"{name}-{number}" for name in _TOPICS]
    stage.new_topics(topics)
    stage.keep_relays(draw.choice([2, 2, 3]), draw)
    floor: int = stage.outbox.value("select coalesce(max(outbox_id), 0) from app_outbox")
    ledger, watch = Ledger(), Watch(stage.postgres.url)
    failures: list[str] = []
    with Writers(stage.postgres.url, f"r{number}", topics, ledger, draw):
        try:
            _wait_for_flow(stage, floor, "before the fault")
            fault.strike(Scene(stage, topics, draw, watch))
            _wait_for_flow(stage, floor, "after the fault")
        except pytest.fail.Exception as error:
            failures.append(str(error))
    failures += stage.bury_the_fallen()
    if not stage.relays:
        stage.keep_relays(2, draw)
    try:
        wait_until(lambda: _is_quiet(stage, floor), "all rows are settled", QUIET_SECONDS)
    except pytest.fail.Exception as error:
        failures.append(str(error))
    result = _reckon(stage, floor, topics, ledger, watch)
    result.problems += failures
    if not result.holds:
        _clear_away(stage, floor)
    return Outcome(number, fault, result)


def _sent(stage: Stage, floor: int) -> int:
    count: int = stage.outbox.value(
        "select count(*) from app_outbox where outbox_id > %s and status = 'SENT'", floor
    )
    return count


def _wait_for_flow(stage: Stage, floor: int, when: str) -> None:
    goal = _sent(stage, floor) + _FLOW_ROWS
    wait_until(lambda: _sent(stage, floor) >= goal, f"rows flow {when}", QUIET_SECONDS)


def _is_quiet(stage: Stage, floor: int) -> bool:
    busy: bool = stage.outbox.value(
        "select exists (select from app_outbox where outbox_id > %s and (status = 'PROCESSING' "
        "or (status = 'PENDING' and next_run_at < now() + interval '10 minutes')))",
        floor,
    )
    return not busy


def _reckon(
    stage: Stage, floor: int, topics: Sequence[str], ledger: Ledger, watch: Watch
) -> Reckoning:
    ids = [
        row[0]
        for row in stage.outbox.query(
            "select outbox_id from app_outbox where outbox_id > %s", floor
        )
    ]
    records = [
        record
        for topic in topics
        for record in read_topic(stage.kafka.direct_servers, topic, timeout=60)
    ]
    return reckon(ledger, stage.outbox.rows(ids), records, watch.outbox_ids)


def _clear_away(stage: Stage, floor: int) -> None:
    """What a failed round left must not become the next one's trouble."""
    for relay in list(stage.relays):
        stage.kill(relay)
    stage.outbox.execute(
        "update app_outbox set status = 'CANCELLED', claim_id = null "
        "where outbox_id > %s and status in ('PENDING', 'PROCESSING')",
        floor,
    )
