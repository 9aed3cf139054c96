"""The servers of a chaos run, each behind a proxy, and the relays between them."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import psycopg
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bridge.database.migrations import Migrator
from bridge.local.postgres import LocalPostgres
from tests.crash.chaos.writers import ACCOUNTS
from tests.fixtures.cli import CliProcess
from tests.fixtures.kafka import silent
from tests.fixtures.proxied_kafka import ProxiedKafka
from tests.fixtures.proxy import Proxy
from tests.fixtures.relays import PATIENCE, Outbox, RelayProcess
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from random import Random
    from types import TracebackType

_REPLICAS = 3
_PARTITIONS = 2
_SETTINGS: dict[str, Any] = {
    # Short, so that a frozen relay loses its claims soon, and longer than a busy machine's pauses.
    "relay_heartbeat_interval": 0.8,
    "relay_lease": 5,
    "relay_lease_margin": 1.5,
    "kafka_message_timeout_ms": 2500,
    # A message that is charged although it must not be comes back while the round still looks.
    "retry_base": 0.5,
    "retry_cap": 2,
    "log_format": "json",
}
_KEPT_PREFIXES = ("OUTBOX_BRIDGE_", "PG")


class Stage:
    """PostgreSQL, three Kafka nodes and a changing number of relays; `with` starts and ends all.

    The relays reach every server through a proxy, whoever checks them goes past it.
    """

    def __init__(self, folder: Path, settings: dict[str, Any] | None = None) -> None:
        self._folder = folder
        self._settings = {**_SETTINGS, **(settings or {})}
        self._started = 0
        self._paused = threading.Event()
        self._outbox: Outbox | None = None
        self.postgres = LocalPostgres(durable=False)
        self.kafka = ProxiedKafka(_REPLICAS)
        self.database_proxy = Proxy()
        self.relays: list[RelayProcess] = []
        self.admin: AdminClient

    def __enter__(self) -> Self:
        try:
            self.kafka.__enter__()
            self.postgres.start()
            self.database_proxy.target = self._database_port
            with psycopg.connect(self.postgres.url, autocommit=True) as connection:
                Migrator(connection).up()
                connection.execute(ACCOUNTS)
            self.admin = AdminClient(
                {"bootstrap.servers": self.kafka.direct_servers}, logger=silent
            )
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        for relay in self.relays:
            if relay.process.running:
                relay.process.kill()
        if self._outbox is not None:
            self._outbox.close()
        self.kafka.close()
        self.postgres.close()
        self.database_proxy.close()

    @property
    def _database_port(self) -> int:
        return urlsplit(self.postgres.url).port or 0

    @property
    def outbox(self) -> Outbox:
        """The database, past the proxy; opened again after the server ended the connection."""
        if self._outbox is not None:
            with contextlib.suppress(psycopg.OperationalError):
                self._outbox.execute("select")
                return self._outbox
            self._outbox.close()
        self._outbox = Outbox(self.postgres.url)
        return self._outbox

    def pause(self, seconds: float) -> None:
        """Let a fault last; the one thing here that is a matter of time alone."""
        self._paused.wait(seconds)

    def new_topics(self, names: Sequence[str]) -> None:
        """Create topics with three in-sync replicas, of which two must acknowledge."""
        wanted = [
            NewTopic(name, num_partitions=_PARTITIONS, replication_factor=_REPLICAS)
            for name in names
        ]
        for future in self.admin.create_topics(wanted).values():
            future.result(30)
        for name in names:
            wait_until(lambda name=name: self.in_sync(name), f"{name} is replicated", PATIENCE)  # type: ignore[misc] # bound per turn

    def in_sync(self, topic: str) -> bool:
        """Whether every partition has a leader and all of its replicas follow."""
        found = self.admin.list_topics(topic, timeout=30).topics[topic]
        return bool(found.partitions) and all(
            part.error is None and part.leader >= 0 and len(part.isrs) == _REPLICAS
            for part in found.partitions.values()
        )

    # Relays

    def start_relay(self, draw: Random) -> RelayProcess:
        """Start one more relay, with settings drawn at random."""
        self._started += 1
        name = f"relay-{self._started}"
        settings = {
            **self._settings,
            "relay_batch_rows": draw.choice([20, 100, 1000]),
            "relay_settle_interval": draw.choice([0.001, 0.02, 0.3]),
            "database_url": self._proxied_url(),
            "kafka_bootstrap_servers": self.kafka.bootstrap_servers,
        }
        kept = {n: v for n, v in os.environ.items() if not n.startswith(_KEPT_PREFIXES)}
        given = {f"OUTBOX_BRIDGE_{n.upper()}": str(value) for n, value in settings.items()}
        folder = self._folder / name
        folder.mkdir(parents=True)
        process = CliProcess(("relay", "--json", "--name", name), {**kept, **given}, folder)
        relay = RelayProcess(name, process)
        self.relays.append(relay)
        return relay

    def _proxied_url(self) -> str:
        return self.postgres.url.replace(
            f":{self._database_port}/", f":{self.database_proxy.port}/"
        )

    def keep_relays(self, count: int, draw: Random) -> None:
        """Have so many relays at work: start what is missing, stop what is too much, in order."""
        while len(self.relays) > count:
            self.relays.pop(draw.randrange(len(self.relays))).stop()
        while len(self.relays) < count:
            self.start_relay(draw)
        for relay in self.relays:
            relay.wait_until_started()

    def kill(self, relay: RelayProcess) -> None:
        """SIGKILL one relay and wait until the database has noticed the end of its sessions."""
        relay.process.kill()
        self.relays.remove(relay)
        wait_until(lambda: not self.outbox.sessions(relay.name), "its sessions are gone", PATIENCE)

    def halt(self, relay: RelayProcess) -> None:
        """SIGSTOP one relay and wait until the database has finished what it had asked for."""
        relay.process.send(signal.SIGSTOP)
        self.outbox.wait_at_rest(relay.name)

    def bury_the_fallen(self) -> list[str]:
        """Take note of relays that ended by themselves, which none may; returns why."""
        fallen = [relay for relay in self.relays if not relay.process.running]
        self.relays = [relay for relay in self.relays if relay not in fallen]
        return [
            f"{relay.name} ended by itself with exit code {relay.process.process.returncode}: "
            f"{(relay.process.stderr.splitlines() or ['(no output)'])[-1][:400]}"
            for relay in fallen
        ]
