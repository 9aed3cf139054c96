"""A topic with one partition that nobody leads keeps its other partitions flowing."""

from __future__ import annotations

import random
import uuid
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.cimpl import NewTopic

from bridge.kafka.partitions import partition_of
from tests.fixtures.kafka import read_topic
from tests.fixtures.relays import ids_of
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from tests.crash.chaos.stage import Stage

pytestmark = pytest.mark.timeout(240)

_PARTITIONS = 3


def test_the_partitions_that_are_left_take_their_rows_and_the_rest_waits_uncharged_in_order(
    stage: Stage,
) -> None:
    topic = f"split-{uuid.uuid4().hex[:6]}"
    local, outbox = stage.kafka.local, stage.outbox
    new = NewTopic(
        topic,
        num_partitions=_PARTITIONS,
        replication_factor=1,
        config={"min.insync.replicas": "1"},
    )
    stage.admin.create_topics([new])[topic].result(30)

    def leaders() -> dict[int, int]:
        found = stage.admin.list_topics(topic, timeout=30).topics[topic].partitions
        return {number: partition.leader for number, partition in found.items()}

    wait_until(lambda: len(leaders()) == _PARTITIONS and min(leaders().values()) > 0, "leaders")
    stage.keep_relays(2, random.Random(7))  # noqa: S311 - no secret
    outbox.wait_for("SENT", outbox.add(30, topic, prefix=f"{topic}-warm"))
    node = leaders()[0]
    dead = {number for number, leader in leaders().items() if leader == node}

    local.kill(node - 1)
    try:
        plain = outbox.add(300, topic, prefix=f"{topic}-plain")
        keyed = [
            outbox_id
            for number in range(30)
            for outbox_id in outbox.add(
                3, topic, prefix=f"{topic}-{number}", ordering_key=f"key-{number}"
            )
        ]
        rows = outbox.rows([*plain, *keyed])
        stuck = [
            row.outbox_id
            for row in rows
            if partition_of((row.ordering_key or row.message_key).encode(), _PARTITIONS) in dead
        ]
        free = [row.outbox_id for row in rows if row.outbox_id not in set(stuck)]
        assert len(stuck) > 50
        assert len(free) > 50
        outbox.wait_for("SENT", free)
        assert not any(row.status in {"SENT", "FAILED"} for row in outbox.rows(stuck))
    finally:
        local.recover()
    healed = outbox.wait_for("SENT", stuck)

    assert all(row.retry_count == 0 for row in [*outbox.rows(free), *healed])
    records = read_topic(stage.kafka.direct_servers, topic, timeout=60)
    sent = list(dict.fromkeys(ids_of(records)))
    assert set(sent) >= {*stuck, *free}
    by_key: dict[str, list[int]] = {}
    key_of = {row.outbox_id: row.ordering_key for row in rows if row.ordering_key}
    for outbox_id in sent:
        if outbox_id in key_of:
            by_key.setdefault(key_of[outbox_id], []).append(outbox_id)
    assert all(ids == sorted(ids) for ids in by_key.values())
