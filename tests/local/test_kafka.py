"""The local Apache Kafka: nodes that end and come back, one or three."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from bridge.errors import LocalError
from bridge.local import kafka as kafka_module
from bridge.local.kafka import LocalKafka
from bridge.local.ports import free_ports
from tests.fixtures.kafka import read_topic, silent

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.kafka import OwnKafkaFunction

pytestmark = pytest.mark.timeout(240)


def send(local: LocalKafka, topic: str, values: range) -> None:
    settings = {"bootstrap.servers": local.bootstrap_servers, "acks": "all"}
    producer = Producer(settings, logger=silent)
    failures: list[object] = []
    for number in values:
        producer.produce(
            topic,
            str(number).encode(),
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(60) == 0
    assert failures == []


def received(local: LocalKafka, topic: str) -> list[int]:
    records = read_topic(local.bootstrap_servers, topic, timeout=60)
    return sorted(int(record.value or b"-1") for record in records)


def test_one_node_keeps_records_and_address_however_it_ends(own_kafka: OwnKafkaFunction) -> None:
    local = own_kafka()
    address = local.bootstrap_servers
    send(local, "orders", range(10))
    admin = AdminClient({"bootstrap.servers": address}, logger=silent)
    assert len(admin.list_topics("orders", timeout=30).topics["orders"].partitions) == 6
    local.kill()
    local.restart()
    send(local, "orders", range(10, 20))
    local.suspend()
    local.resume()
    local.stop()
    local.restart()
    assert local.bootstrap_servers == address
    assert received(local, "orders") == list(range(20))


def test_three_nodes_take_records_while_one_is_down(own_kafka: OwnKafkaFunction) -> None:
    local = own_kafka(brokers=3)
    send(local, "orders", range(10))
    local.kill(1)
    send(local, "orders", range(10, 20))
    local.restart(1)
    local.kill(0)
    send(local, "orders", range(20, 30))
    assert received(local, "orders") == list(range(30))
    local.suspend(1)
    local.kill(2)
    local.recover()
    assert all(node.running for node in local.nodes)
    send(local, "orders", range(30, 40))
    assert received(local, "orders") == list(range(40))


def test_data_folders_keep_topics_and_give_way_to_taken_ports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_kafka: OwnKafkaFunction
) -> None:
    with LocalKafka(data=tmp_path / "kafka") as local:
        before = local.bootstrap_servers
        send(local, "orders", range(5))
    with LocalKafka(data=tmp_path / "kafka") as other:
        assert other.bootstrap_servers == before
    with pytest.raises(LocalError, match=r"holds a Kafka of 1 broker.*--data"):
        LocalKafka(data=tmp_path / "kafka", brokers=3).start()

    running = own_kafka()
    taken = [running.nodes[0].port]
    asked = [0]

    def unlucky(count: int, preferred: list[int] | None = None) -> list[int]:
        asked[0] += 1
        return [*taken, *free_ports(count - 1)] if asked[0] == 1 else free_ports(count, preferred)

    monkeypatch.setattr(kafka_module, "free_ports", unlucky)
    with LocalKafka(data=tmp_path / "kafka") as again:
        assert again.bootstrap_servers != running.bootstrap_servers
        assert received(again, "orders") == list(range(5))
    assert asked[0] >= 2  # once more where somebody else takes a port meanwhile


def test_a_node_that_does_not_start_says_why(tmp_path: Path, own_kafka: OwnKafkaFunction) -> None:
    local = LocalKafka(data=tmp_path / "kafka", settings={"num.io.threads": "none"})
    with pytest.raises(LocalError, match=r"(?s)num\.io\.threads"):
        local.start()


def test_two_brokers_are_refused() -> None:
    with pytest.raises(LocalError, match="1 or 3 brokers, not 2"):
        LocalKafka(brokers=2)
