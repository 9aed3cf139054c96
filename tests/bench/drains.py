"""One drain: a backlog is filled and sent, by the relay or by the peer."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tests.bench import outbox
from tests.bench.debezium import THROUGHPUT, Debezium
from tests.bench.figures import BenchError
from tests.bench.relay_process import RelayProcess
from tests.bench.topic import Arrival, TopicReader, await_records

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.bench.lab import Lab

_SLOWEST = 1_000
"""Rows per second below which a drain is given up."""
_START_SECONDS = 60.0


@dataclass(frozen=True)
class Drain:
    """One drain of `rows` rows. CPU in µs a row, memory in MiB.

    `rows_per_second`: from the first to the last record in the topic, by the broker's clock.
    `process_rows_per_second`: over the life of the sender's process, start to end; 0 for the peer,
    which does not end. The peer's CPU counts from its first record on, its `sender_life_cpu_us`
    from its start; for the relay both are its whole life.
    """

    side: str
    rows: int
    rows_per_second: float
    process_rows_per_second: float
    sender_cpu_us: float
    sender_life_cpu_us: float
    postgres_cpu_us: float
    kafka_cpu_us: float
    peak_mib: float
    wal_bytes: float = 0.0
    wal_full_page_bytes: float = 0.0
    hot_share: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)


def drain_by_relay(
    lab: Lab,
    database: str,
    topic: str,
    rows: int,
    *,
    keys: int | None = None,
    sampled_of_100: int | None = None,
    settings: Mapping[str, str] | None = None,
) -> Drain:
    """Fill `rows` rows into a migrated database and let the relay send them until it is empty.

    `keys`: they share so many ordering keys; without, they have none. `sampled_of_100`: they carry
    a trace context, sampled for so many of 100. `settings`: further variables of the relay.
    Raises BenchError unless each row is in the topic exactly once and SENT.
    """
    server = lab.server()
    with server.connect(database) as connection:
        outbox.checkpoint(connection)
        if sampled_of_100 is not None:
            outbox.fill_traced(connection, topic, rows, sampled_of_100)
        elif keys is None:
            outbox.fill(connection, topic, rows)
        else:
            outbox.fill_keys(connection, topic, rows, keys)
        outbox.settle_down(connection)
        updates = outbox.updates(connection)
        start = outbox.wal_position(connection)
        postgres, kafka = server.cpu_seconds(), lab.kafka_cpu_seconds()
        with RelayProcess(
            server.url(database),
            lab.kafka.bootstrap_servers,
            "--until-empty",
            folder=lab.new_folder("relay"),
            settings=settings,
        ) as relay:
            usage = relay.wait(_START_SECONDS + rows / _SLOWEST)
        postgres, kafka = server.cpu_seconds() - postgres, lab.kafka_cpu_seconds() - kafka
        wal = outbox.wal_since(connection, start)
        left = outbox.unsent(connection, topic)
        hot = outbox.hot_share(connection, updates, 2 * rows)
    arrival = read_topic(lab, topic)
    if left or arrival.records != rows or arrival.keys != (keys or rows):
        raise BenchError(
            f"the relay left {left} of {rows} rows unsent; the topic holds {arrival.records} "
            f"records with {arrival.keys} different keys"
        )
    return Drain(
        side="outbox-bridge",
        rows=rows,
        rows_per_second=arrival.per_second,
        process_rows_per_second=rows / usage.seconds,
        sender_cpu_us=usage.cpu_seconds / rows * 1e6,
        sender_life_cpu_us=usage.cpu_seconds / rows * 1e6,
        postgres_cpu_us=postgres / rows * 1e6,
        kafka_cpu_us=kafka / rows * 1e6,
        peak_mib=usage.peak_mib,
        wal_bytes=(wal.total - wal.full_pages) / rows,
        wal_full_page_bytes=wal.full_pages / rows,
        hot_share=hot,
    )


def drain_by_debezium(lab: Lab, jars: Path, rows: int) -> Drain:
    """Let Debezium make its slot, stop it, fill, and let it send what piled up meanwhile."""
    server = lab.server(logical_wal=True)
    with server.database() as database, lab.topic() as topic:
        outbox.migrate(server, database)
        with Debezium(
            server,
            database,
            lab.kafka.bootstrap_servers,
            THROUGHPUT,
            jars=jars,
            folder=lab.new_folder("debezium"),
        ) as peer:
            with peer.running():
                pass
            with server.connect(database) as connection:
                outbox.checkpoint(connection)
                outbox.fill(connection, topic, rows)
                outbox.settle_down(connection)
            with peer.running():
                before, after = _cpu_while_sending(lab, peer, topic, rows)
                peak = peer.peak_mib()
        arrival = read_topic(lab, topic)
    return Drain(
        side="debezium",
        rows=rows,
        rows_per_second=arrival.per_second,
        process_rows_per_second=0.0,
        sender_cpu_us=(after.sender - before.sender) / rows * 1e6,
        sender_life_cpu_us=after.sender / rows * 1e6,
        postgres_cpu_us=(after.postgres - before.postgres) / rows * 1e6,
        kafka_cpu_us=(after.kafka - before.kafka) / rows * 1e6,
        peak_mib=peak,
    )


@dataclass(frozen=True)
class _Cpu:
    """CPU seconds so far."""

    sender: float
    postgres: float
    kafka: float

    @classmethod
    def now(cls, lab: Lab, peer: Debezium) -> _Cpu:
        postgres = lab.server(logical_wal=True).cpu_seconds()
        return cls(peer.cpu_seconds(), postgres, lab.kafka_cpu_seconds())


def _cpu_while_sending(lab: Lab, peer: Debezium, topic: str, rows: int) -> tuple[_Cpu, _Cpu]:
    """Wait until all rows are in the topic; return times before the first and after the last."""
    before = _Cpu.now(lab, peer)

    def look(found: int) -> None:
        nonlocal before
        if not found:
            before = _Cpu.now(lab, peer)
        if not peer.alive:
            raise BenchError(f"Debezium ended after {found} rows:\n{peer.log_tail()}")

    await_records(
        lab.kafka.bootstrap_servers, topic, rows, _START_SECONDS + rows / _SLOWEST, look=look
    )
    return before, _Cpu.now(lab, peer)


def read_topic(lab: Lab, topic: str) -> Arrival:
    """Read what has arrived."""
    with closing(TopicReader(lab.kafka.bootstrap_servers, topic)) as reader:
        return reader.read()
