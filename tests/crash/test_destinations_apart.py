"""A destination that takes nothing leaves the others flowing, and flows again when it is healed."""

from __future__ import annotations

import random
import uuid
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.cimpl import NewTopic

from tests.crash.chaos.faults import Scene, set_min_in_sync
from tests.crash.chaos.watch import Watch
from tests.fixtures.kafka import read_topic
from tests.fixtures.relays import ids_of
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from tests.crash.chaos.stage import Stage

pytestmark = pytest.mark.timeout(240)

SEED = 11


def names() -> tuple[str, str]:
    suffix = uuid.uuid4().hex[:6]
    return f"broken-{suffix}", f"healthy-{suffix}"


def assert_others_complete(stage: Stage, broken: str, healthy: str, prefix: str) -> list[int]:
    """While `broken` takes nothing all rows of `healthy` are sent; returns the waiting rows."""
    outbox = stage.outbox
    waiting = outbox.add(300, broken, prefix=f"{prefix}-w")
    waiting += outbox.add(50, broken, prefix=f"{prefix}-wo", ordering_key="k")
    good = outbox.add(300, healthy, prefix=f"{prefix}-g")
    good += outbox.add(50, healthy, prefix=f"{prefix}-go", ordering_key="k")
    outbox.wait_for("SENT", good)
    assert all(row.status in {"PENDING", "PROCESSING"} for row in outbox.rows(waiting))
    assert all(row.retry_count == 0 for row in outbox.rows(waiting + good))
    return waiting


def assert_sent_in_order(stage: Stage, topic: str, waiting: list[int]) -> None:
    rows = stage.outbox.wait_for("SENT", waiting)
    assert all(row.retry_count == 0 for row in rows)
    records = read_topic(stage.kafka.direct_servers, topic, timeout=60)
    sent = list(dict.fromkeys(ids_of(records)))
    assert set(waiting) <= set(sent)
    keyed = [i for i in sent if i in set(waiting[300:])]
    assert keyed == sorted(keyed)


def test_a_destination_without_leader_leaves_the_others_flowing(stage: Stage) -> None:
    """One replica only, and its node is gone; another topic lives on the two that are left."""
    broken, healthy = names()
    local = stage.kafka.local
    stage.new_topics([healthy])
    new = NewTopic(
        broken, num_partitions=1, replication_factor=1, config={"min.insync.replicas": "1"}
    )
    stage.admin.create_topics([new])[broken].result(30)

    def leader() -> int:
        found = stage.admin.list_topics(broken, timeout=30).topics[broken].partitions
        return int(found[0].leader) if found else -1

    node = wait_until(lambda: max(0, leader()), "the topic has a leader") - 1
    stage.keep_relays(2, random.Random(SEED))  # noqa: S311 - no secret
    warm = stage.outbox.add(5, broken, prefix=f"{broken}-warm")
    stage.outbox.wait_for("SENT", warm)
    local.kill(node)
    try:
        waiting = assert_others_complete(stage, broken, healthy, broken)
    finally:
        local.recover()
    assert_sent_in_order(stage, broken, waiting)
    assert all(relay.process.running for relay in stage.relays)


def test_a_destination_below_its_in_sync_replicas_leaves_the_others_flowing(stage: Stage) -> None:
    broken, healthy = names()
    local = stage.kafka.local
    stage.new_topics([broken, healthy])
    scene = Scene(stage, [broken], random.Random(SEED), Watch(stage.postgres.url))  # noqa: S311
    stage.keep_relays(2, scene.draw)
    set_min_in_sync(scene, broken, "3")
    local.kill(2)
    try:
        waiting = assert_others_complete(stage, broken, healthy, broken)
    finally:
        local.recover()
        set_min_in_sync(scene, broken, "2")
    assert_sent_in_order(stage, broken, waiting)


def test_a_destination_whose_topic_is_missing_leaves_the_others_flowing(stage: Stage) -> None:
    """The brokers create no topic by themselves; once somebody has, its rows go out in order."""
    missing, healthy = names()
    stage.new_topics([healthy])
    stage.keep_relays(2, random.Random(SEED))  # noqa: S311 - no secret
    waiting = assert_others_complete(stage, missing, healthy, missing)

    stage.new_topics([missing])

    assert_sent_in_order(stage, missing, waiting)
