"""The parts of a run: two PostgreSQL servers with the same settings, and one Kafka."""

from __future__ import annotations

import itertools
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psycopg
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from bridge.local.kafka import LocalKafka
from bridge.local.postgres import LocalPostgres
from tests.bench.processes import cpu_seconds, family_cpu_seconds
from tests.fixtures.kafka import silent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType

SERVER_SETTINGS = {"max_wal_size": "8GB"}
"""Beside `shared_buffers`; everything else is PostgreSQL's default, fsync and full pages too."""
SHARED_BUFFERS = "1GB"
PARTITIONS = 6
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Server:
    """One running PostgreSQL."""

    local: LocalPostgres

    def connect(self, database: str = "postgres") -> psycopg.Connection[tuple[Any, ...]]:
        """Open an autocommit connection as superuser."""
        return psycopg.connect(self.url(database), autocommit=True)

    def url(self, database: str) -> str:
        """Return the conninfo of one of its databases."""
        return make_conninfo(self.local.url, dbname=database)

    def parameters(self, database: str) -> dict[str, str]:
        """Return host, port, user, password and dbname."""
        return {name: str(value) for name, value in conninfo_to_dict(self.url(database)).items()}

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of all its processes so far."""
        return family_cpu_seconds(self.local.process.pid)

    @contextmanager
    def database(self) -> Iterator[str]:
        """Make a database of a fresh name and drop it again, whoever is still connected."""
        name = f"bench_{next(_numbers)}"
        with self.connect() as connection:
            connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        try:
            yield name
        finally:
            with self.connect() as connection:
                connection.execute(
                    sql.SQL("drop database {} with (force)").format(sql.Identifier(name))
                )


class Lab:
    """Starts each part when it is first asked for, and ends all of them at the end of `with`.

    `progress` gets a line for each step; `folder` holds logs and is removed at the end.
    """

    def __init__(self, progress: Callable[[str], None]) -> None:
        self.progress = progress
        self._stack = ExitStack()
        self._servers: dict[bool, Server] = {}
        self._kafka: LocalKafka | None = None
        self._folder: Path | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def folder(self) -> Path:
        """A folder of this run."""
        if self._folder is None:
            temporary = tempfile.TemporaryDirectory(prefix="outbox-bridge-bench-")
            self._folder = Path(self._stack.enter_context(temporary))
        return self._folder

    def new_folder(self, name: str) -> Path:
        """Make a folder of a fresh name below `folder`."""
        made = self.folder / f"{name}-{next(_numbers)}"
        made.mkdir()
        return made

    def server(self, *, logical_wal: bool = False) -> Server:
        """Return the server of ours, or the one with logical WAL that the peer needs."""
        if logical_wal not in self._servers:
            self.progress(f"starting PostgreSQL{' with logical WAL' if logical_wal else ''}")
            local = LocalPostgres(
                logical_wal=logical_wal, shared_buffers=SHARED_BUFFERS, settings=SERVER_SETTINGS
            )
            self._servers[logical_wal] = Server(self._stack.enter_context(local))
        return self._servers[logical_wal]

    @property
    def kafka(self) -> LocalKafka:
        """The Kafka of one node that both sides send to."""
        if self._kafka is None:
            self.progress("starting Kafka")
            self._kafka = self._stack.enter_context(LocalKafka(progress=self.progress))
        return self._kafka

    def kafka_cpu_seconds(self) -> float:
        """Return the CPU seconds of the broker so far."""
        return cpu_seconds(self.kafka.nodes[0].process.pid)

    @contextmanager
    def topic(self, settings: Mapping[str, str] | None = None) -> Iterator[str]:
        """Make a topic of a fresh name and delete it again.

        Its records carry the time at which the broker appended them.
        """
        name = f"bench-{next(_numbers)}"
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers}, logger=silent)
        config = {"message.timestamp.type": "LogAppendTime", **(settings or {})}
        new = NewTopic(name, num_partitions=PARTITIONS, replication_factor=1, config=config)
        admin.create_topics([new])[name].result(30)
        try:
            yield name
        finally:
            admin.delete_topics([name])[name].result(30)
