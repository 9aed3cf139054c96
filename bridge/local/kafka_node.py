"""One node of a local Kafka: broker and controller in one JVM."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.errors import LocalError
from bridge.local.ports import LOOPBACK, is_open
from bridge.local.process import LeashedProcess, run_to_end, tail

if TYPE_CHECKING:
    from collections.abc import Mapping

_LOG_CONFIGURATION = Path(__file__).with_name("log4j2.properties")
_FORMAT_SECONDS = 120.0
_START_SECONDS = 120.0
_PORT_TAKEN = "Address already in use"


class KafkaNode:
    """`node_id` counts from 1; everything of the node stands below `home`; `heap` is the JVM's."""

    def __init__(self, node_id: int, home: Path, jars: Path, heap: str = "512m") -> None:
        self.node_id = node_id
        self.home = home
        self.port = 0
        self.log = home / "server.log"
        self._output = home / "output.log"
        self._properties = home / "server.properties"
        self._data = home / "data"
        self._jars = jars
        self._heap = heap
        self._process: LeashedProcess | None = None

    @property
    def process(self) -> LeashedProcess:
        """The node's JVM; raises LocalError while there is none."""
        if self._process is None:
            raise LocalError(f"Kafka node {self.node_id} is not running.")
        return self._process

    @property
    def running(self) -> bool:
        """Whether the node was started and not stopped since."""
        return self._process is not None and self._process.alive

    def configure(self, port: int, settings: Mapping[str, str]) -> None:
        """Write the node's settings file, for this client port."""
        self.home.mkdir(parents=True, exist_ok=True)
        self.port = port
        lines = [f"{name}={value}" for name, value in {**settings, **self._own()}.items()]
        self._properties.write_text("\n".join(lines) + "\n")

    def _own(self) -> dict[str, str]:
        return {"node.id": str(self.node_id), "log.dirs": str(self._data)}

    def format(self, cluster_id: str) -> None:
        """Prepare the node's storage for this cluster, once."""
        if (self._data / "meta.properties").exists():
            return
        shutil.rmtree(self._data, ignore_errors=True)
        run_to_end(
            self._java(
                "kafka.tools.StorageTool",
                "format",
                f"--cluster-id={cluster_id}",
                f"--config={self._properties}",
            ),
            what=f"Preparing the storage of Kafka node {self.node_id}",
            timeout=_FORMAT_SECONDS,
        )

    def launch(self) -> None:
        """Start the JVM; `wait_open` tells when it serves."""
        # The end of these files explains a failed start, so they hold one start each.
        self._output.unlink(missing_ok=True)
        self.log.unlink(missing_ok=True)
        self._process = self._java("kafka.Kafka", str(self._properties))

    def wait_open(self) -> bool:
        """Wait until clients can connect; False where its port was taken by somebody else."""
        process = self.process
        deadline = time.monotonic() + _START_SECONDS
        # The port alone may be open to somebody else's server.
        while not (is_open(self.port) and process.listens_on(self.port)):
            if not process.alive:
                self._process = None
                output = tail(self._output, 4000) + tail(self.log, 4000)
                if _PORT_TAKEN in output:
                    return False
                raise LocalError(
                    f"Kafka node {self.node_id} ended while starting; see {self.log}:\n"
                    f"{tail(self.log, 8) or tail(self._output, 8)}"
                )
            if time.monotonic() > deadline:
                self.kill()
                raise LocalError(
                    f"Kafka node {self.node_id} was not ready after {_START_SECONDS:.0f} s; see "
                    f"{self.log}:\n{tail(self.log, 8)}"
                )
            time.sleep(0.05)
        return True

    def stop(self, timeout: float = 30.0) -> None:
        """Let the node hand over its partitions and end; after `timeout` seconds it is killed."""
        process, self._process = self._process, None
        if process is not None:
            process.stop(timeout=timeout)

    def kill(self) -> None:
        """End the node at once (SIGKILL)."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()

    def _java(self, main_class: str, *arguments: str) -> LeashedProcess:
        java = shutil.which("java")
        if java is None:
            raise LocalError("There is no `java` any more; Kafka needs Java 17 or newer.")
        return LeashedProcess(
            [
                java,
                f"-Xmx{self._heap}",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-XX:+ExitOnOutOfMemoryError",
                "-Djava.awt.headless=true",
                f"-Doutbox.bridge.log={self.log}",
                f"-Dlog4j2.configurationFile={_LOG_CONFIGURATION.as_uri()}",
                "-cp",
                f"{self._jars}/*",
                main_class,
                *arguments,
            ],
            log=self._output,
        )


def node_settings(
    broker_ports: list[int], controller_ports: list[int], node_id: int
) -> dict[str, str]:
    """Return the settings of one node that follow from the cluster's size and ports."""
    nodes = len(broker_ports)
    broker = f"PLAINTEXT://{LOOPBACK}:{broker_ports[node_id - 1]}"
    replicas = str(min(3, nodes))
    # Two of three: one node may be down and acknowledged records still stand on two.
    in_sync = str(2 if nodes > 2 else 1)  # noqa: PLR2004 - two copies need a third node to spare
    voters = ",".join(
        f"{number}@{LOOPBACK}:{port}" for number, port in enumerate(controller_ports, start=1)
    )
    return {
        "process.roles": "broker,controller",
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"{broker},CONTROLLER://{LOOPBACK}:{controller_ports[node_id - 1]}",
        "advertised.listeners": broker,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "num.partitions": "6",
        "auto.create.topics.enable": "true",
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": "6",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": "6",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "group.initial.rebalance.delay.ms": "0",
        # The default takes a quarter of this heap.
        "log.cleaner.dedupe.buffer.size": "8388608",
    }
