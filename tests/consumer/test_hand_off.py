"""Messages handed to an HTTP API: which answers end a message, which cost an attempt."""

from __future__ import annotations

import asyncio
import json
from email.utils import formatdate
from typing import TYPE_CHECKING

import pytest

from bridge.consumer import RetryPolicy
from bridge.consumer.hand_off import HandOff, header_text
from bridge.consumer.retry_after import seconds_to_wait
from bridge.errors import ConfigurationError
from bridge.local.ports import free_ports
from tests.consumer.api import Answer, Api, Request, always
from tests.consumer.conftest import Sent, committed_of, running, settled, until
from tests.fixtures.postgres import on_one_server
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from tests.consumer.conftest import NewConsumerFunction, ProduceFunction, Shop
    from tests.fixtures.cli import StartCliFunction
    from tests.fixtures.kafka import ConsumeFunction, KafkaBroker, NewTopicFunction
    from tests.fixtures.otlp import Collector

SOON = RetryPolicy(attempts=3, base=0.02, cap=0.1)
CONTEXT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_every_answer_has_its_consequence(
    new_topic: NewTopicFunction,
    produce: ProduceFunction,
    new_consumer: NewConsumerFunction,
    consume: ConsumeFunction,
) -> None:
    """The key says what the API answers at first; after that it says 201."""
    firsts = {
        "busy": Answer(429, {"Retry-After": "0"}),
        "away": Answer(503, {"Retry-After": formatdate(0, usegmt=True)}),
        "broken": Answer(500),
        "gateway": Answer(502),
        "under-way": Answer(409),
        "credentials": Answer(401),
        "moved": Answer(307, {"Location": "http://elsewhere.example/"}),
        "lost": Answer(0),
        "slow": Answer(201, seconds=600.0),
    }

    def answer(request: Request, before: int) -> Answer:
        if request.key == "refused":
            return Answer(422, body=b"no such customer")
        if request.key == "always-broken":
            return Answer(500, body=b"a bug")
        return firsts.get(request.key, Answer(201)) if before == 0 else Answer(201)

    topic, dead = new_topic(), new_topic("dead", partitions=1)
    keys = [*firsts, "refused", "always-broken", "fine"]
    produce(topic, [Sent(key, {"cents": 5}) for key in keys])
    consumer = new_consumer(
        topic, inbox=None, dead_letter_topic=dead, retry=SOON, concurrency=len(keys)
    )
    with Api(answer) as api:
        # Long enough for every answer that comes at once, on a busy machine too.
        HandOff(api.url, timeout=5.0).attach(consumer)
        async with running(consumer):
            letters = await asyncio.to_thread(consume, dead, 2)
            await until(lambda: settled(consumer) == len(keys), "all are done with")
    asked = {key: api.keys().count(key) for key in keys}
    assert asked == {**dict.fromkeys(firsts, 2), "refused": 1, "always-broken": 3, "fine": 1}
    found = {
        letter.headers["idempotency-key"]: (
            letter.headers["dead-letter-code"],
            letter.headers["dead-letter-reason"].partition("answered ")[2],
        )
        for letter in letters
    }
    assert found == {
        "refused": ("HTTP_422", "422: no such customer"),
        "always-broken": ("HANDLER_FAILED", "500: a bug"),
    }


async def test_requests_carry_payload_key_and_trace_over_few_connections(
    new_topic: NewTopicFunction, produce: ProduceFunction, new_consumer: NewConsumerFunction
) -> None:
    topic = new_topic(partitions=1)
    produce(
        topic,
        [
            Sent("a", {"cents": 5}, "charge.asked", headers={"traceparent": CONTEXT}),
            Sent("straße 100%", tombstone=True),
            *(Sent(f"m-{n}", n) for n in range(100)),
        ],
    )
    consumer = new_consumer(topic, inbox=None, concurrency=3)
    with Api(always(Answer())) as api:
        HandOff(api.url, method="PUT", headers={"X-Api-Version": "3"}).attach(consumer)
        async with running(consumer):
            await until(lambda: settled(consumer) == 102, "all are done with")
    first = next(request for request in api.requests if request.key == "a")
    assert first.method == "PUT"
    assert json.loads(first.body) == {"cents": 5}
    assert first.headers["content-type"] == "application/json"
    assert first.headers["outbox-event-type"] == "charge.asked"
    assert first.headers["x-api-version"] == "3"
    assert first.headers["traceparent"] == CONTEXT
    tombstone = next(r for r in api.requests if r.headers.get("outbox-tombstone") == "true")
    assert (tombstone.key, tombstone.body) == ("stra%C3%9Fe 100%25", b"")
    assert "content-type" not in tombstone.headers
    assert api.connections <= 3


async def test_retry_after_holds_up_every_message(
    new_topic: NewTopicFunction, produce: ProduceFunction, new_consumer: NewConsumerFunction
) -> None:
    """While the API asks for a pause nothing else is sent to it, and nothing is charged."""
    topic = new_topic(partitions=1)
    produce(topic, [Sent(f"m-{n}", n) for n in range(20)])
    consumer = new_consumer(
        topic, inbox=None, concurrency=1, retry=RetryPolicy(attempts=1, base=0.02, cap=0.1)
    )
    loop = asyncio.get_running_loop()
    times: list[float] = []

    def answer(request: Request, before: int) -> Answer:
        times.append(loop.time())
        return Answer(429, {"Retry-After": "1"}) if len(times) == 1 else Answer()

    with Api(answer) as api:
        HandOff(api.url).attach(consumer)
        async with running(consumer):
            await until(lambda: settled(consumer) == 20, "all are done with")
    assert len(times) == 21
    assert times[1] - times[0] >= 1.0


@on_one_server
async def test_api_that_is_away_costs_no_attempt_and_known_keys_no_request(
    new_topic: NewTopicFunction,
    produce: ProduceFunction,
    new_consumer: NewConsumerFunction,
    shop: Shop,
) -> None:
    topic = new_topic(partitions=1)
    produce(topic, [Sent("a", {"cents": 5}), Sent("a", {"cents": 5}), Sent("b", {"cents": 6})])
    consumer = new_consumer(topic, retry=RetryPolicy(attempts=1, base=0.02, cap=0.1))
    (port,) = free_ports(1)
    HandOff(f"http://127.0.0.1:{port}/charges").attach(consumer)
    async with running(consumer):
        await until(lambda: consumer.counts.get("retries", 0) >= 4, "it is tried again and again")
        body = b'{"charge": 17}'
        kind = {"Content-Type": "application/json"}
        with Api(always(Answer(201, kind, body)), port=port) as api:
            await until(lambda: settled(consumer) == 3, "all are done with")
    assert sorted(api.keys()) == ["a", "b"]
    assert shop.value("select result_json from app_inbox where message_key = 'a'") == {
        "status": 201,
        "answer": {"charge": 17},
    }
    assert "blocked" not in consumer.counts


@on_one_server
def test_command_hands_over_and_stops(
    *,
    new_topic: NewTopicFunction,
    produce: ProduceFunction,
    start_cli: StartCliFunction,
    kafka: KafkaBroker,
    shop: Shop,
    collector: Collector,
) -> None:
    topic = new_topic(partitions=1)
    produce(topic, [Sent("a", 1, "charge.asked"), Sent("b", 2, "charge.other"), Sent("c", 3)])
    produce(topic, [Sent("a", 1, "charge.asked")])
    with Api(always(Answer(200))) as api:
        process = start_cli(
            *("hand-off", topic, "--url", api.url, "--group", f"charge-{topic}"),
            *("--events", "charge.*", "--header", "X-One: 1", "--json"),
            env={
                **collector.env(),
                "OUTBOX_BRIDGE_HANDOFF_AUTHORIZATION": "Bearer xyz",
                "OUTBOX_BRIDGE_HANDOFF_INBOX_URL": shop.url,
            },
        )
        wait_until(
            lambda: shop.value("select count(*) from app_inbox") == 2 or not process.running,
            "both are handed over",
        )
        wait_until(lambda: committed_of(kafka, f"charge-{topic}", topic) == 4, "all offsets")
        assert process.terminate() == 0, process.stderr
    report = json.loads(process.stdout)
    assert (report["processed"], report["duplicates"], report["unhandled"]) == (2, 1, 1)
    assert sorted(api.keys()) == ["a", "b"]
    assert {request.headers["authorization"] for request in api.requests} == {"Bearer xyz"}
    assert {request.headers["x-one"] for request in api.requests} == {"1"}
    spans = {f"00-{span.trace_id}-{span.span_id}": span for span in collector.spans("process")}
    assert {span.service for span in spans.values()} == {"outbox-bridge-hand-off"}
    # The API's own spans become children of the message's.
    assert {request.headers["traceparent"][:-3] for request in api.requests} <= set(spans)


@pytest.mark.parametrize(
    ("url", "headers", "text"),
    [
        ("api.example.net/charges", {}, "must begin with http"),
        ("ftp://api.example.net", {}, "must begin with http"),
        ("http://api", {"idempotency-key": "x"}, "written by the hand-off itself"),
        ("http://api", {"X-Name": "ä"}, "not printable ASCII"),
        ("http://api", {"X-Name": "a\r\nX-Other: b"}, "not printable ASCII"),
    ],
)
def test_unusable_addresses_and_headers_are_refused(
    url: str, headers: dict[str, str], text: str
) -> None:
    with pytest.raises(ConfigurationError, match=text):
        HandOff(url, headers=headers)


@pytest.mark.parametrize(
    ("text", "date", "seconds"),
    [
        ("120", None, 120.0),
        (" 0 ", None, 0.0),
        ("1.5", None, 1.5),
        ("Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:07 GMT", 30.0),
        ("Sun, 06 Nov 1994 08:49:37 GMT", None, 7.0),
        ("Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:07 1994", 30.0),
        ("Sun, 06 Nov 1994 08:49:07 GMT", "Sun, 06 Nov 1994 08:49:37 GMT", 0.0),
        (None, None, None),
        ("", None, None),
        ("soon", None, None),
        ("-5", None, None),
        ("٣", None, None),
    ],
)
def test_retry_after_is_read(text: str | None, date: str | None, seconds: float | None) -> None:
    now = 784111777 - 7.0  # seven seconds before that moment
    assert seconds_to_wait(text, date, now) == seconds


def test_no_two_keys_become_one_header() -> None:
    keys = ["a", "a b", "a%20b", "ä", "%C3%A4", " a", "a ", "a\n", "100%"]
    texts = [header_text(key) for key in keys]
    assert len(set(texts)) == len(keys)
    assert texts[:2] == ["a", "a b"]
    for text in texts:
        assert text.isascii()
        assert text.isprintable()
        assert text == text.strip()
