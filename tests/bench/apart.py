"""`apart`: the pace of a healthy destination beside one that takes nothing."""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bridge.local.kafka import LocalKafka
from tests.bench import outbox
from tests.bench.figures import RATIO, BenchError, Findings, at_least, ratios
from tests.bench.relay_process import RelayProcess
from tests.bench.topic import TopicReader, await_records
from tests.fixtures.kafka import silent
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.bench.lab import Lab
    from tests.bench.sizes import Sizes

_PATIENCE = 300.0
_SICK = "sick"


@dataclass(frozen=True)
class _Cluster:
    """Two brokers that are left of three. Nobody leads the partitions of the topic `sick`."""

    servers: str
    healthy: list[str]
    """A topic for each drain, on the brokers that are left."""


def run(lab: Lab, sizes: Sizes, peer: Path | None) -> Findings:
    """Drain alone and beside a backlog whose broker is gone, in a cluster that has lost it."""
    del peer
    found = Findings("apart")
    alone: list[float] = []
    beside: list[float] = []
    with _cluster(lab, 2 * sizes.pairs) as cluster:
        for number in range(sizes.pairs):
            for side in (alone, beside) if number % 2 == 0 else (beside, alone):
                name = "beside a sick destination" if side is beside else "alone"
                lab.progress(f"apart {number + 1}/{sizes.pairs}: {name}")
                pace = _pace(lab, sizes, cluster, is_beside=side is beside)
                found.runs.append({"case": name, "rows_per_second": pace})
                side.append(pace)
    found.add("healthy destination alone", alone, "/s")
    name = f"the same beside {sizes.sick_rows:,} rows of a topic whose broker is gone"
    found.add(name, beside, "/s")
    found.add("ratio beside the sick destination", ratios(beside, alone), RATIO, at_least(0.9))
    return found


@contextmanager
def _cluster(lab: Lab, drains: int) -> Iterator[_Cluster]:
    lab.progress("apart: starting three Kafka nodes, of which one is stopped")
    with LocalKafka(brokers=3, progress=lab.progress) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}, logger=silent)
        healthy = [f"healthy-{number}" for number in range(drains)]
        config = {"message.timestamp.type": "LogAppendTime"}
        new = [
            NewTopic(name, 6, replica_assignment=[[1], [2]] * 3, config=config) for name in healthy
        ]
        new.append(NewTopic(_SICK, 6, replica_assignment=[[3]] * 6, config=config))
        for future in admin.create_topics(new).values():
            future.result(60)
        kafka.stop(2)

        def is_sick() -> bool:
            partitions = admin.list_topics(_SICK, timeout=30).topics[_SICK].partitions.values()
            return all(partition.leader < 0 for partition in partitions)

        wait_until(is_sick, "the sick topic has no leader", 60)
        yield _Cluster(kafka.bootstrap_servers, healthy)


def _pace(lab: Lab, sizes: Sizes, cluster: _Cluster, *, is_beside: bool) -> float:
    """Return the rows a second of the healthy topic, by the broker's clock."""
    server = lab.server()
    healthy = cluster.healthy.pop()
    with server.database() as database:
        outbox.migrate(server, database)
        with server.connect(database) as connection:
            if is_beside:
                outbox.fill(connection, _SICK, sizes.sick_rows)
            outbox.fill(connection, healthy, sizes.scale_rows, first=sizes.sick_rows + 1)
            outbox.settle_down(connection)
            with RelayProcess(
                server.url(database), cluster.servers, folder=lab.new_folder("relay")
            ):
                await_records(cluster.servers, healthy, sizes.scale_rows, _PATIENCE)
            if outbox.sent(connection, _SICK):
                raise BenchError("the sick destination is none: rows of it were sent")
    with closing(TopicReader(cluster.servers, healthy)) as reader:
        return reader.read().per_second
