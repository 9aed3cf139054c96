"""The consumers of `docs/consumers.md` in other languages: they compile, run, and effect once."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from bridge.consumer.received import hash_content
from bridge.local.kafka_jars import ensure_jars
from tests.consumer.conftest import Sent, committed_of
from tests.docs.test_consumers_page import blocks
from tests.fixtures.postgres import on_one_server
from tests.fixtures.waiting import wait_until
from tests.integrations import toolchains
from tests.integrations.test_page import jdbc_url

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.consumer.conftest import ProduceFunction, Shop
    from tests.fixtures.kafka import ConsumeFunction, KafkaBroker, NewTopicFunction

PATIENCE = 60.0
PAID = {
    "order-1-paid": {"id": 1, "cents": 100},
    "order-2-paid": {"id": 2, "cents": 200},
    "order-3-paid": {"id": 3, "cents": 300},
}


def java(source: str, folder: Path) -> list[str | Path]:
    toolchains.need("javac", "mvn")
    libraries = f"{toolchains.java_libraries()}/*:{ensure_jars(print)}/*"
    (folder / "Billing.java").write_text(source)
    toolchains.run("javac", "-cp", libraries, "Billing.java", cwd=folder)
    quick = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    return ["java", *quick, "-cp", f"{folder}:{libraries}", "Billing"]


def go(source: str, folder: Path) -> list[str | Path]:
    toolchains.need("go")
    program = toolchains.go_program(source, folder)
    toolchains.run("go", "vet", "-mod=readonly", ".", cwd=folder)
    return [program]


def typescript(source: str, folder: Path) -> list[str | Path]:
    toolchains.need("node", "npm")
    return ["node", toolchains.typescript_program(source, folder)]


@on_one_server
@pytest.mark.timeout(400)  # a first run fills the compilers' caches
@pytest.mark.parametrize("language", [java, go, typescript], ids=lambda one: one.__name__)
def test_a_repeated_record_has_its_effect_once(
    *,
    language: Callable[[str, Path], list[str | Path]],
    kafka: KafkaBroker,
    new_topic: NewTopicFunction,
    produce: ProduceFunction,
    consume: ConsumeFunction,
    shop: Shop,
    tmp_path: Path,
) -> None:
    if not kafka.is_real:
        pytest.skip("needs a real Kafka, and its jars")
    topic, dead = new_topic(partitions=1), new_topic("dead", partitions=1)
    shop.conn.execute("create table bill (order_id bigint, cents integer)")
    first, second, third = (Sent(key, order, "order.paid") for key, order in PAID.items())
    careless = [
        Sent(first.message_key, {"id": 1, "cents": 999}, "order.paid"),
        Sent(second.message_key, event_type="order.paid", tombstone=True),
    ]
    produce(topic, [first, first, second, *careless, first, third])
    # Each run is a group, and a consumer in the inbox, of its own.
    (snippet,) = blocks(language.__name__)
    command = language(snippet.replace("billing", f"billing-{topic}"), tmp_path)
    url = jdbc_url(shop.url) if language is java else shop.url

    with (tmp_path / "told").open("w") as told:
        process = subprocess.Popen(
            [*command, kafka.bootstrap_servers, topic, dead, url],
            cwd=tmp_path,
            stdout=told,
            stderr=subprocess.STDOUT,
        )

    def wait_for(check: Callable[[], bool], what: str) -> None:
        wait_until(lambda: process.poll() is not None or check(), what, PATIENCE)
        assert process.poll() is None, (tmp_path / "told").read_text()

    try:
        # First this: before a member has joined, Kafka may not know who keeps the group's offsets.
        wait_for(lambda: len(shop.query("select from bill")) >= len(PAID), "all is billed")
        wait_for(lambda: committed_of(kafka, f"billing-{topic}", topic) == 7, "all is committed")
    finally:
        process.kill()
        process.wait()

    bills = shop.query("select order_id, cents from bill order by order_id")
    assert bills == [(order["id"], order["cents"]) for order in PAID.values()]
    # The hashes are those of the kit, which may take over from here.
    entered = shop.query(
        "select message_key, content_hash, event_type, outbox_id, topic, record_offset "
        "from app_inbox order by record_offset"
    )
    assert entered == [
        (
            sent.message_key,
            hash_content("order.paid", sent.value),
            "order.paid",
            sent.outbox_id,
            topic,
            offset,
        )
        for sent, offset in ((first, 0), (second, 2), (third, 6))
    ]
    letters = consume(dead)
    assert [(one.key, one.value) for one in letters] == [
        (sent.message_key.encode(), sent.value) for sent in careless
    ]
    for letter, sent in zip(letters, careless, strict=True):
        assert letter.headers["dead-letter-code"] == "KEY_REUSED"
        assert letter.headers["outbox-id"] == str(sent.outbox_id)
