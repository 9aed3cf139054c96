"""Held keys with real relays: a failed head holds its key, over kills and hand-overs."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from psycopg.types.json import Jsonb

from tests.fixtures.postgres import on_one_server
from tests.fixtures.relays import FAST_LEASE, PATIENCE, ids_of
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.kafka import ConsumeFunction, NewTopicFunction, ReceivedRecord
    from tests.fixtures.relays import Outbox, StartRelayFunction

BAD = Jsonb({"number": 1})
"""Headers that no record can carry: the row fails before it reaches Kafka."""
CURE = "update app_outbox set headers = '{}', status = 'PENDING', next_run_at = now()"


def assert_first_occurrences_in_order(records: list[ReceivedRecord]) -> None:
    seen: dict[bytes | None, list[int]] = defaultdict(list)
    for record in records:
        outbox_id = int(record.headers["outbox-id"])
        if outbox_id not in seen[record.key]:
            seen[record.key].append(outbox_id)
    for key, found in seen.items():
        assert found == sorted(found), key


def failed_head(outbox: Outbox, topic: str, key: str) -> int:
    (head,) = outbox.add(1, topic, prefix=f"head-{key}", ordering_key=key, headers=BAD)
    outbox.wait_for("FAILED", [head])
    return head


@on_one_server
def test_followers_wait_for_a_failed_head_and_go_in_order_after_it(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
) -> None:
    topic = new_topic()
    start_relay()
    head = failed_head(outbox, topic, "stuck")
    followers = outbox.add(3000, topic, prefix="f", ordering_key="stuck")
    others = outbox.add(20, topic, prefix="o", ordering_key="free")
    outbox.wait_for("SENT", others)
    wait_until(
        lambda: outbox.value("select count(*) from app_outbox_queue where parked = 'k'") == 3000,
        "the followers are parked",
        PATIENCE,
    )
    assert outbox.counts() == {"FAILED": 1, "PENDING": 3000, "SENT": 20}
    outbox.execute(f"{CURE} where outbox_id = %s", head)
    more = outbox.add(50, topic, prefix="more", ordering_key="stuck")
    outbox.wait_all_sent()
    sent = [r for r in consume(topic) if r.key == b"stuck"]
    assert ids_of(sent) == [head, *followers, *more]
    assert outbox.value("select count(*) from app_outbox_hold") == 0


@on_one_server
def test_a_killed_relays_holds_hold_for_the_next_owner(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
) -> None:
    topic = new_topic()
    first = start_relay(**FAST_LEASE)
    keys = [f"k-{number}" for number in range(8)]
    heads = [failed_head(outbox, topic, key) for key in keys]
    for key in keys:
        outbox.add(100, topic, prefix=f"f-{key}", ordering_key=key)
    start_relay(**FAST_LEASE)
    first.process.kill()
    for key in keys:
        outbox.add(20, topic, prefix=f"g-{key}", ordering_key=key)
    free = outbox.add(20, topic, prefix="free", ordering_key="free")
    outbox.wait_for("SENT", free)
    assert outbox.counts() == {"FAILED": 8, "PENDING": 8 * 120, "SENT": 20}
    outbox.execute(f"{CURE} where outbox_id = any(%s)", heads)
    outbox.wait_all_sent()
    assert_first_occurrences_in_order(consume(topic))


@on_one_server
def test_under_skip_followers_go_without_the_failed_row(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    tmp_path: Path,
) -> None:
    topic = new_topic()
    config = tmp_path / "outbox-bridge.toml"
    config.write_text(f'[[routes]]\ndestination = "{topic}"\non_failure = "skip"\n')
    start_relay("--config", str(config))
    failed_head(outbox, topic, "k")
    outbox.wait_for("SENT", outbox.add(100, topic, prefix="f", ordering_key="k"))
    assert outbox.value("select count(*) from app_outbox_hold") == 0


@on_one_server
def test_a_run_until_empty_waits_for_followers_that_come_back(
    outbox: Outbox, start_relay: StartRelayFunction, new_topic: NewTopicFunction
) -> None:
    topic = new_topic()
    relay = start_relay()
    head = failed_head(outbox, topic, "k")
    followers = outbox.add(3000, topic, prefix="f", ordering_key="k")
    wait_until(
        lambda: outbox.value("select count(*) from app_outbox_queue where parked is null") == 0,
        "the followers are parked",
        PATIENCE,
    )
    # To its end: what it has in flight at its stop is not yet SENT where nothing is due any more.
    relay.stop()
    outbox.execute("update app_outbox set status = 'CANCELLED' where outbox_id = %s", head)
    assert start_relay("--until-empty", wait=False).process.wait() == 0
    assert {row.status for row in outbox.rows(followers)} == {"SENT"}
