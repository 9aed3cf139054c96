"""Large payloads beside small ones: all arrive, within a memory budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil

from tests.fixtures.postgres import on_one_server
from tests.fixtures.relays import PATIENCE, RANDOM_TEXT, assert_places_hold
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from tests.fixtures.kafka import ConsumeFunction, NewTopicFunction
    from tests.fixtures.relays import Outbox, RunRelayFunction, StartRelayFunction

# The budget is the relay's own, whatever PostgreSQL's version.
pytestmark = on_one_server

KIB = 1024
MIB = 1024 * KIB


def test_a_900_kib_row_beside_small_ones(
    outbox: Outbox,
    run_relay: RunRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
) -> None:
    topic = new_topic()
    small = outbox.add(300, topic, prefix="a")
    text = outbox.value(RANDOM_TEXT, 900 * KIB)
    raw = text.encode()
    outbox.add(1, topic, prefix="json", payload_json=text)
    outbox.add(1, topic, prefix="bytes", payload_bytes=raw)
    outbox.add(1, topic, prefix="ordered", payload_json=text, ordering_key="k")
    small += outbox.add(300, topic, prefix="b")

    report = run_relay()

    assert report["sent"] == 603
    records = consume(topic)
    assert_places_hold(outbox.rows(), records)
    large = {r.headers["idempotency-key"]: r.value for r in records if len(r.value or b"") > 100}
    assert large == {"json-1": raw, "bytes-1": raw, "ordered-1": raw}


def test_middling_payloads_fill_the_budget_and_large_ones_still_get_through(
    outbox: Outbox,
    run_relay: RunRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
) -> None:
    topic = new_topic()
    middling, large = outbox.value(RANDOM_TEXT, 20 * KIB), outbox.value(RANDOM_TEXT, 300 * KIB)
    for number in range(10):
        outbox.add(40, topic, prefix=f"middling-{number}", payload_json=middling)
        outbox.add(2, topic, prefix=f"large-{number}", payload_json=large)

    report = run_relay(relay_max_inflight_bytes=MIB, relay_inline_payload_bytes=64 * KIB)

    assert report["sent"] == 420
    assert_places_hold(outbox.rows(), consume(topic))


def test_memory_stays_bounded_however_many_large_rows_wait(
    outbox: Outbox, start_relay: StartRelayFunction, new_topic: NewTopicFunction
) -> None:
    topic = new_topic()
    relay = start_relay(relay_max_inflight_bytes=8 * MIB)
    outbox.wait_for("SENT", outbox.add(500, topic, prefix="warm"))
    process = psutil.Process(relay.process.pid)
    before = process.memory_info().rss
    text = outbox.value(RANDOM_TEXT, 600 * KIB)
    ids = outbox.add(200, topic, prefix="large", payload_json=text)
    highest = 0

    def all_sent() -> bool:
        nonlocal highest
        highest = max(highest, process.memory_info().rss)
        return outbox.counts().get("SENT") == 700

    wait_until(all_sent, f"{len(ids)} large rows are SENT", PATIENCE)
    # 117 MiB went through; the budget is 8, and librdkafka and malloc take their share.
    assert highest - before < 64 * MIB
