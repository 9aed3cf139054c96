"""A local Apache Kafka of one or three nodes, on free ports of the loopback interface."""

from __future__ import annotations

import base64
import json
import logging
import shutil
import tempfile
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from bridge.errors import LocalError
from bridge.local.kafka_jars import ensure_jars, kafka_version, missing_programs
from bridge.local.kafka_node import KafkaNode, node_settings
from bridge.local.ports import LOOPBACK, free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

_START_ATTEMPTS = 5
_READY_SECONDS = 90.0
_STOP_SECONDS = 15.0
_SIZES = (1, 3)

_silent = logging.getLogger("bridge.local.kafka.client")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


class LocalKafka:
    """A cluster that `with` starts and ends, or `start` and `close`; nodes count from 0.

    `data` keeps topics and ports from one start to the next; without it a private folder is made
    and removed again. `settings` are further broker settings by name, `adapt` may change those of
    one node (it is given the node's number, from 0), `heap` is each JVM's limit. Raises LocalError.
    """

    is_real = True

    def __init__(
        self,
        *,
        data: Path | None = None,
        brokers: int = 1,
        settings: Mapping[str, str] | None = None,
        adapt: Callable[[int, dict[str, str]], dict[str, str]] = lambda _, settings: settings,
        heap: str = "512m",
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        if brokers not in _SIZES:
            raise LocalError(f"A local Kafka has 1 or 3 brokers, not {brokers}.")
        missing = missing_programs()
        if missing:
            raise LocalError(missing)
        jars = ensure_jars(progress)
        self._private = data is None
        self._home = data or Path(tempfile.mkdtemp(prefix="outbox-bridge-kafka-"))
        self._settings = dict(settings or {})
        self._adapt = adapt
        self._record = self._home / "cluster.json"
        self.nodes = [
            KafkaNode(number, self._home / f"node-{number}", jars, heap)
            for number in range(1, brokers + 1)
        ]

    @property
    def bootstrap_servers(self) -> str:
        """Every node's address, `host:port` joined by commas."""
        return ",".join(f"{LOOPBACK}:{node.port}" for node in self.nodes)

    def describe(self) -> str:
        """Return the name and version for people, such as `Apache Kafka 4.3.1`."""
        return f"Apache Kafka {kafka_version()}"

    def start(self) -> None:
        """Start every node and return once all of them serve; keeps the ports if possible."""
        self._home.mkdir(parents=True, exist_ok=True)
        kept = self._read_record()
        cluster_id: str = kept.get("cluster_id") or _new_cluster_id()
        wanted: list[int] | None = kept.get("ports")
        for _ in range(_START_ATTEMPTS):
            ports = free_ports(2 * len(self.nodes), wanted)
            if self._started_on(ports, cluster_id):
                self._await_brokers(len(self.nodes))
                return
            wanted = None
        raise LocalError(
            f"The local Kafka found its ports taken {_START_ATTEMPTS} times; see {self._home}."
        )

    def _started_on(self, ports: list[int], cluster_id: str) -> bool:
        size = len(self.nodes)
        for node in self.nodes:
            settings = node_settings(ports[:size], ports[size:], node.node_id)
            adapted = self._adapt(node.node_id - 1, {**settings, **self._settings})
            node.configure(ports[node.node_id - 1], adapted)
        self._record.write_text(
            json.dumps({"cluster_id": cluster_id, "brokers": size, "ports": ports}) + "\n"
        )
        with ThreadPoolExecutor(size) as pool:
            list(pool.map(lambda node: node.format(cluster_id), self.nodes))
            for node in self.nodes:
                node.launch()
            if all(pool.map(KafkaNode.wait_open, self.nodes)):
                return True
        self._stop_all()
        return False

    def _read_record(self) -> dict[str, Any]:
        if not self._record.exists():
            return {}
        kept: dict[str, Any] = json.loads(self._record.read_text())
        if kept["brokers"] != len(self.nodes):
            raise LocalError(
                f"{self._home} holds a Kafka of {kept['brokers']} broker(s), not "
                f"{len(self.nodes)}. Ask for that number, give another folder (--data), or remove "
                "this one if its topics are not needed."
            )
        return kept

    def _await_brokers(self, count: int) -> None:
        # Without a logger of its own librdkafka reports every refused attempt on stderr.
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers}, logger=_silent)
        deadline = time.monotonic() + _READY_SECONDS
        while True:
            try:
                known = len(admin.list_topics(timeout=2).brokers)
            except KafkaException:
                known = 0
            if known >= count:
                return
            if time.monotonic() > deadline:
                raise LocalError(
                    f"Only {known} of {count} Kafka brokers were there after {_READY_SECONDS:.0f} "
                    f"s; see {', '.join(str(node.log) for node in self.nodes)}."
                )
            time.sleep(0.05)

    def stop(self, node: int = 0) -> None:
        """Stop one node in good order; its data and port stay."""
        self.nodes[node].stop()

    def kill(self, node: int = 0) -> None:
        """End one node at once (SIGKILL); its data and port stay."""
        self.nodes[node].kill()

    def suspend(self, node: int = 0) -> None:
        """Freeze one node: connections stay open and nothing answers (SIGSTOP)."""
        self.nodes[node].process.suspend()

    def resume(self, node: int = 0) -> None:
        """Let a suspended node go on (SIGCONT)."""
        self.nodes[node].process.resume()

    def restart(self, node: int = 0) -> None:
        """Start one node again, stopping it first where it runs, and wait until it serves."""
        again = self.nodes[node]
        again.stop()
        again.launch()
        if not again.wait_open():
            raise LocalError(f"Port {again.port} of Kafka node {again.node_id} was taken.")
        self._await_brokers(sum(other.running for other in self.nodes))

    def recover(self) -> None:
        """Let every node go on: resume the suspended, start the ended, and wait until all serve."""
        ended = [node for node in self.nodes if not node.running]
        for node in self.nodes:
            # All at once: a node alone waits in vain for a controller's majority.
            node.launch() if node in ended else node.process.resume()
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            for node, is_open in zip(ended, pool.map(KafkaNode.wait_open, ended), strict=True):
                if not is_open:
                    raise LocalError(f"Port {node.port} of Kafka node {node.node_id} was taken.")
        self._await_brokers(len(self.nodes))

    def close(self) -> None:
        """End every node and remove the folder if it is a private one; safe to call twice."""
        if self._private:
            for node in self.nodes:
                node.kill()
            shutil.rmtree(self._home, ignore_errors=True)
        else:
            self._stop_all()

    def _stop_all(self) -> None:
        # All at once, and not for long: the last nodes wait in vain for a controller's majority.
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            list(pool.map(lambda node: node.stop(_STOP_SECONDS), self.nodes))

    def __enter__(self) -> Self:
        try:
            self.start()
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


def _new_cluster_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
