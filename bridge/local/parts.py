"""A PostgreSQL and a Kafka together: started here, or given by their addresses."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bridge.local.broker import BrokerKind, choose_broker
from bridge.local.kafka import LocalKafka
from bridge.local.postgres import LocalPostgres

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bridge.local.identity import ProcessIdentity
    from bridge.local.mock import MockKafka


@dataclass(frozen=True)
class LocalParts:
    """What runs; `database` and `broker` are names and versions for people.

    `postgres` and `kafka` are the handles of what was started here, None for what was given.
    `is_real` is False for librdkafka's mock cluster only.
    """

    database_url: str = field(repr=False)
    bootstrap_servers: str
    database: str
    broker: str
    is_real: bool
    postgres: LocalPostgres | None
    kafka: LocalKafka | MockKafka | None

    def servers(self) -> dict[str, ProcessIdentity]:
        """Return the processes that were started, by name."""
        found: dict[str, ProcessIdentity] = {}
        if self.postgres is not None:
            found["postgres"] = self.postgres.process.identity
        if isinstance(self.kafka, LocalKafka):
            for node in self.kafka.nodes:
                found[f"kafka-{node.node_id}"] = node.process.identity
        return found


@contextmanager
def local_parts(
    *,
    kafka: BrokerKind = "auto",
    brokers: int = 1,
    data: Path | None = None,
    database_url: str | None = None,
    bootstrap_servers: str | None = None,
    durable: bool = True,
    logical_wal: bool = False,
    shared_buffers: str = "128MB",
    progress: Callable[[str], None] = lambda _: None,
) -> Iterator[LocalParts]:
    """Start what is not given, and end at the end of the block what was started.

    `data` keeps everything below that folder; without it private folders are made and removed.
    `progress` gets one line for each step, also from other threads. Raises LocalError.
    """
    postgres: LocalPostgres | None = None
    broker: LocalKafka | MockKafka | None = None
    with ExitStack() as stack:
        if bootstrap_servers is None:
            broker = choose_broker(
                kafka, data=data / "kafka" if data else None, brokers=brokers, progress=progress
            )
            stack.callback(broker.close)
        if database_url is None:
            postgres = LocalPostgres(
                data=data / "postgres" if data else None,
                durable=durable,
                logical_wal=logical_wal,
                shared_buffers=shared_buffers,
            )
            stack.callback(postgres.close)
        _start([part for part in (postgres, broker) if part is not None], progress)
        yield LocalParts(
            database_url=postgres.url if postgres else database_url or "",
            bootstrap_servers=broker.bootstrap_servers if broker else bootstrap_servers or "",
            database=postgres.describe() if postgres else f"PostgreSQL at {_place(database_url)}",
            broker=broker.describe() if broker else f"Kafka at {bootstrap_servers}",
            is_real=broker.is_real if broker else True,
            postgres=postgres,
            kafka=broker,
        )


def _start(
    parts: list[LocalPostgres | LocalKafka | MockKafka], progress: Callable[[str], None]
) -> None:
    def start(part: LocalPostgres | LocalKafka | MockKafka) -> None:
        progress(f"starting {part.describe()}")
        part.start()
        progress(f"{part.describe()} is ready")

    with ThreadPoolExecutor(max(1, len(parts))) as pool:
        list(pool.map(start, parts))


def _place(url: str | None) -> str:
    # Never the password, and a libpq string without a URL's form may hold one anywhere.
    return urlsplit(url or "").hostname or "the given address"
