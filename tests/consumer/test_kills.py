"""Two consumers in a group, killed again and again: effects exactly once, in order per key."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.consumer.conftest import PATIENCE, Sent
from tests.consumer.member import STARTED
from tests.fixtures.postgres import on_one_server
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.consumer.conftest import ProduceFunction, Shop
    from tests.fixtures.kafka import KafkaBroker, NewTopicFunction

_CHECKOUT = Path(__file__).resolve().parents[2]
KILLS = 20
MESSAGES = 5000
KEYS = 200


class Member:
    """A consumer process that is started again after each kill."""

    def __init__(self, folder: Path, name: str, **given: Any) -> None:
        self._folder, self._name, self._given = folder, name, given
        self._starts = 0
        self.start()

    def start(self) -> None:
        self._starts += 1
        name = f"{self._name}-{self._starts}"
        with (self._folder / f"{name}.log").open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.consumer.member"),
                    json.dumps({**self._given, "name": name}),
                ],
                cwd=_CHECKOUT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        # Earlier than this a signal may end Python itself, amid its imports.
        wait_until(lambda: STARTED in self.log, f"{self._name} has started", PATIENCE)
        self.process.terminate()
        assert self.process.wait(PATIENCE) == 0, self.log

    @property
    def log(self) -> str:
        return (self._folder / f"{self._name}-{self._starts}.log").read_text()


@contextlib.contextmanager
def group(folder: Path, members: list[dict[str, Any]]) -> Iterator[list[Member]]:
    started = [Member(folder, f"member-{n}", **given) for n, given in enumerate(members)]
    try:
        yield started
    finally:
        for member in started:
            if member.process.poll() is None:
                member.kill()


@pytest.mark.timeout(240)
@on_one_server
def test_twenty_kills_leave_each_effect_exactly_once(
    kafka: KafkaBroker,
    new_topic: NewTopicFunction,
    produce: ProduceFunction,
    shop: Shop,
    tmp_path: Path,
) -> None:
    """One member is static, one works in batches; one message in eight comes twice.

    Killed at moments that dice choose, amid transactions, commits and rebalances.
    """
    dice = random.Random(20)  # noqa: S311 - no secret
    topic = new_topic(partitions=6)
    records: list[Sent] = []
    for n in range(MESSAGES):
        records.append(Sent(f"m-{n}", n, key=f"k-{n % KEYS}"))
        if n % 8 == 0:
            records.append(records[dice.randrange(max(0, len(records) - 500), len(records))])
    portion = -(-len(records) // KILLS)
    given: dict[str, Any] = {
        "topic": topic,
        "group": f"killed-{topic}",
        "brokers": kafka.bootstrap_servers,
        "database": shop.url,
    }
    members: list[dict[str, Any]] = [
        {**given, "static_member": None, "batch_size": 20},
        {**given, "static_member": "second", "batch_size": 1},
    ]
    count = "select count(*) from effect"
    with group(tmp_path, members) as started:
        for number in range(KILLS):
            produce(topic, records[number * portion : (number + 1) * portion])
            wanted = shop.value(count) + dice.randrange(1, 150)
            wait_until(
                lambda wanted=wanted: shop.value(count) >= wanted,  # type: ignore[misc]
                "some are done",
                PATIENCE,
            )
            time.sleep(dice.random() * 0.2)  # any moment will do
            victim = dice.choice(started)
            victim.kill()
            victim.start()
        wait_until(lambda: shop.value(count) >= MESSAGES, "all have their effect", PATIENCE)
        for member in started:
            member.stop()
    rows = shop.query("select ordering_key, number, consumer from effect order by effect_id")
    assert sorted(number for _, number, _ in rows) == list(range(MESSAGES))
    assert shop.value("select count(*) from app_inbox") == MESSAGES
    by_key = defaultdict(list)
    for key, number, _ in rows:
        by_key[key].append(number)
    assert len(by_key) == KEYS
    # Identity values are drawn inside the transactions, which one key takes one after the other.
    for numbers in by_key.values():
        assert numbers == sorted(numbers)
    assert len({consumer for _, _, consumer in rows}) >= 4


@on_one_server
def test_frozen_member_that_wakes_up_repeats_nothing(
    kafka: KafkaBroker,
    new_topic: NewTopicFunction,
    produce: ProduceFunction,
    shop: Shop,
    tmp_path: Path,
) -> None:
    """Its partitions went to the other one meanwhile; its open transactions held some keys."""
    topic = new_topic(partitions=4)
    given: dict[str, Any] = {
        "topic": topic,
        "group": f"frozen-{topic}",
        "brokers": kafka.bootstrap_servers,
        "database": shop.url,
        "static_member": None,
        "batch_size": 1,
    }
    count = "select count(*) from effect"
    by_others = "select count(*) from effect where consumer not like 'member-0%%'"
    sent = 0

    def send(count: int) -> None:
        nonlocal sent
        numbers = range(sent, sent + count)
        produce(topic, [Sent(f"m-{n}", n, key=f"k-{n % 50}") for n in numbers])
        sent += count

    def both_are_at_work() -> bool:
        # However late one of them comes, there is something left for it.
        if shop.value(count) > sent - 300:
            send(300)
        others = shop.value(by_others)
        return bool(shop.value(count) - others >= 50 and others >= 50)

    with group(tmp_path, [given, given]) as started:
        frozen = started[0].process
        send(600)
        wait_until(both_are_at_work, "both are at work", PATIENCE)
        frozen.send_signal(signal.SIGSTOP)
        before = shop.value(by_others)
        send(400)
        # Four keys at most are held by what the frozen one has open.
        wait_until(
            lambda: shop.value(by_others) >= before + 300, "the other one goes on alone", PATIENCE
        )
        frozen.send_signal(signal.SIGCONT)
        wait_until(lambda: shop.value(count) >= sent, "all have their effect", PATIENCE)
        for member in started:
            member.stop()
    rows = shop.query("select ordering_key, number from effect order by effect_id")
    assert sorted(number for _, number in rows) == list(range(sent))
    by_key = defaultdict(list)
    for key, number in rows:
        by_key[key].append(number)
    for numbers in by_key.values():
        assert numbers == sorted(numbers)
