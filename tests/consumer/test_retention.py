"""Keys outlive records: the check at start, and what is pruned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bridge.consumer import Inbox
from bridge.consumer.retention import retention_problem
from bridge.errors import ConfigurationError
from tests.consumer.conftest import Sent, running, settled, until
from tests.fixtures.postgres import on_one_server

if TYPE_CHECKING:
    from tests.consumer.conftest import NewConsumerFunction, ProduceFunction, Shop
    from tests.fixtures.kafka import NewTopicFunction

DAY = 86400.0


@on_one_server
async def test_inbox_that_forgets_sooner_than_kafka_is_told_of(
    new_topic: NewTopicFunction,
    new_consumer: NewConsumerFunction,
    shop: Shop,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = new_topic(config={"retention.ms": str(30 * 86_400_000)})
    refusing = new_consumer(topic, inbox=Inbox(shop.url, short_retention="refuse"))
    refusing.on("*")(print)
    with pytest.raises(ConfigurationError, match=r"14 days, but topic .* for 30 days"):
        await refusing.serve()
    warning = new_consumer(topic, inbox=Inbox(shop.url))
    warning.on("*")(print)
    async with running(warning):
        await until(lambda: warning.is_ready, "it consumes all the same")
    assert "would have its effect twice" in caplog.text
    caplog.clear()
    long = new_consumer(topic, inbox=Inbox(shop.url, retention=31 * DAY, short_retention="refuse"))
    long.on("*")(print)
    async with running(long):
        await until(lambda: long.is_ready, "it consumes")
    assert "effect twice" not in caplog.text


@pytest.mark.parametrize(
    ("settings", "days", "text"),
    [
        ({"retention.ms": "604800000", "cleanup.policy": "delete"}, 8, None),
        ({"retention.ms": "604800000", "cleanup.policy": "delete"}, 7, "for 7 days"),
        ({"retention.ms": "-1", "cleanup.policy": "delete"}, 9999, "for ever"),
        ({"retention.ms": "1000", "cleanup.policy": "compact"}, 9999, "compaction"),
        ({"retention.ms": "1000", "cleanup.policy": "compact,delete"}, 1, None),
        ({}, 8, None),
    ],
)
def test_retention_is_compared(settings: dict[str, str], days: int, text: str | None) -> None:
    problem = retention_problem("orders", settings, days * DAY)
    assert (problem is None) if text is None else (text in (problem or ""))


@on_one_server
async def test_old_keys_are_pruned_and_young_and_foreign_ones_stay(
    new_topic: NewTopicFunction,
    produce: ProduceFunction,
    new_consumer: NewConsumerFunction,
    shop: Shop,
) -> None:
    topic = new_topic(partitions=1)
    shop.conn.execute(
        "insert into app_inbox (consumer, message_key, content_hash, received_at, event_type, "
        "topic, partition_number, record_offset) "
        "select c, 'old-' || n, sha256(''), now() - interval '8 days', '', 't', 0, n "
        "from generate_series(1, 2500) as n, unnest(array['mine', 'other']) as c"
    )
    produce(topic, [Sent("young", 1)])
    inbox = Inbox(shop.url, consumer="mine", retention=7.5 * DAY, prune_interval=0.1)
    consumer = new_consumer(topic, inbox=inbox)
    consumer.on("*")(print)
    count = "select count(*) from app_inbox where consumer = %s"
    async with running(consumer):
        await until(lambda: settled(consumer) == 1, "the young one is processed")
        await until(lambda: shop.value(count, "mine") == 1, "the old ones are gone")
    assert shop.value(count, "other") == 2500


@pytest.mark.parametrize("retention", [0, -1.0])
def test_retention_of_nothing_is_refused(retention: float) -> None:
    with pytest.raises(ConfigurationError, match="longer than Kafka keeps"):
        Inbox(retention=retention)
