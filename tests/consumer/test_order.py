"""Keys: in order each, side by side, and none held up by another."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from bridge.consumer import RetryLaterError, RetryPolicy
from tests.consumer.conftest import Sent, committed, running, settled, until

if TYPE_CHECKING:
    from bridge.consumer import Received
    from tests.consumer.conftest import NewConsumerFunction, ProduceFunction
    from tests.fixtures.kafka import NewTopicFunction

SOON = RetryPolicy(attempts=10, base=0.02, cap=0.1)


async def test_messages_of_a_key_are_handled_in_order_and_keys_side_by_side(
    new_topic: NewTopicFunction, produce: ProduceFunction, new_consumer: NewConsumerFunction
) -> None:
    """Also where some fail at first: a key waits for its own message alone."""
    topic = new_topic(partitions=3)
    produce(topic, [Sent(f"{n % 17}-{n:04d}", n, key=str(n % 17)) for n in range(400)])
    consumer = new_consumer(topic, inbox=None, concurrency=6, retry=SOON)
    handled: dict[str, list[int]] = defaultdict(list)
    busy: set[str] = set()
    most = 0

    @consumer.on("order.created")
    async def handle(number: int, message: Received) -> None:
        nonlocal most
        key = str(number % 17)
        assert key not in busy
        busy.add(key)
        most = max(most, len(busy))
        try:
            await asyncio.sleep(0.001)
            if number % 23 == 0 and message.attempt < 3:
                raise ValueError("fails twice")
            handled[key].append(number)
        finally:
            busy.discard(key)

    async with running(consumer):
        await until(lambda: settled(consumer) == 400, "all are handled")
    assert sum(map(len, handled.values())) == 400
    for numbers in handled.values():
        assert numbers == sorted(numbers)
    assert 1 < most <= 6


async def test_waiting_key_holds_up_no_other_and_offsets_go_up_to_it(
    new_topic: NewTopicFunction,
    produce: ProduceFunction,
    new_consumer: NewConsumerFunction,
) -> None:
    """The first message of the partition fails until every other one is done."""
    topic = new_topic(partitions=1)
    produce(topic, [Sent("ok", 0, key="first")])
    produce(topic, [Sent("bad", 1, key="bad"), Sent("behind", 2, key="bad")])
    produce(topic, [Sent(f"m-{n}", n, key=f"key-{n}") for n in range(3, 100)])
    consumer = new_consumer(topic, inbox=None, concurrency=2, retry=SOON)
    handled: list[int] = []
    let = asyncio.Event()

    @consumer.on("*")
    async def handle(number: int) -> None:
        if number == 1 and not let.is_set():
            raise RetryLaterError("not yet", after=0.05)
        handled.append(number)

    async with running(consumer):
        await until(lambda: settled(consumer) == 98, "every other key went on")
        assert 2 not in handled
        await until(lambda: committed(consumer, topic) == {0: 1}, "offsets up to the waiting one")
        await until(lambda: consumer.counts["retries"] > 1, "the waiting one was tried again")
        let.set()
        await until(lambda: settled(consumer) == 100, "the key went on")
        await until(lambda: committed(consumer, topic) == {0: 100}, "all offsets")
    assert handled[-2:] == [1, 2]


async def test_partition_that_is_full_holds_up_no_other(
    new_topic: NewTopicFunction, produce: ProduceFunction, new_consumer: NewConsumerFunction
) -> None:
    """A key that waits at the head of one, its followers filling the room for records."""
    topic = new_topic(partitions=2)
    produce(topic, [Sent(f"stuck-{n}", n, key="stuck", partition=0) for n in range(2000)])
    produce(topic, [Sent(f"m-{n}", n, key=f"k-{n}", partition=1) for n in range(3000)])
    consumer = new_consumer(topic, inbox=None, max_records=500, max_poll_interval=1.0)
    let = asyncio.Event()
    handled: list[Any] = []

    @consumer.on("*")
    async def handle(number: int, message: Received) -> None:
        if message.key == b"stuck" and not let.is_set():
            raise RetryLaterError("not yet", after=0.02)
        handled.append(message.partition)

    async with running(consumer):
        await until(lambda: settled(consumer) == 3000, "the other partition went on")
        assert consumer.counts["messaging.client.consumed.messages"] < 4500
        let.set()
        await until(lambda: settled(consumer) == 5000, "all are handled")
    assert handled == [1] * 3000 + [0] * 2000
    assert consumer.rebalances == 1


async def test_consumer_without_room_stays_in_its_group(
    new_topic: NewTopicFunction, produce: ProduceFunction, new_consumer: NewConsumerFunction
) -> None:
    """Kafka hears of it although nothing is fetched for longer than max_poll_interval."""
    topic = new_topic(partitions=1)
    produce(topic, [Sent(f"m-{n}", n, key="k") for n in range(700)])
    consumer = new_consumer(
        topic,
        inbox=None,
        max_records=10,
        max_poll_interval=1.0,
        kafka={"heartbeat_interval_ms": 100, "session_timeout_ms": 6000},
    )
    loop = asyncio.get_running_loop()
    began = 0.0

    @consumer.on("*")
    async def handle(number: int) -> None:
        nonlocal began
        began = began or loop.time()  # not before it has its partition, however long that takes
        if loop.time() < began + 2.5:
            raise RetryLaterError("not yet", after=0.1)

    async with running(consumer):
        await until(lambda: settled(consumer) == 700, "all are handled")
    assert consumer.rebalances == 1
