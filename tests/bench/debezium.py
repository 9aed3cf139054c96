"""The peer: Debezium's outbox router in a standalone worker of Kafka Connect."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import platformdirs

from bridge.local.file_lock import file_lock
from bridge.local.ports import free_ports
from bridge.local.process import LeashedProcess
from tests.bench.figures import BenchError
from tests.bench.processes import cpu_seconds, peak_mib

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from tests.bench.lab import Server

_FILES = Path(__file__).with_name("debezium")
_POM = _FILES / "pom.xml"
_SLOT = "dbz"
_START_SECONDS = 120.0
_DOWNLOAD_SECONDS = 900.0


@dataclass(frozen=True)
class Tuning:
    """The two values that decide between throughput and latency, in ms."""

    poll_ms: int
    linger_ms: int


THROUGHPUT = Tuning(poll_ms=20, linger_ms=5)
LATENCY = Tuning(poll_ms=1, linger_ms=0)


def debezium_version() -> str:
    """Return the version that the pom names."""
    found = re.search(r"<debezium\.version>([^<]+)<", _POM.read_text())
    if found is None:
        raise BenchError(f"{_POM} names no version of Debezium")
    return found[1]


def ensure_jars(progress: Callable[[str], None]) -> Path:
    """Return the folder with the worker's jars; Maven fetches them once into the user's cache."""
    content = hashlib.sha256(_POM.read_bytes()).hexdigest()[:8]
    cache = platformdirs.user_cache_path("outbox-bridge")
    folder = cache / f"debezium-{debezium_version()}-{content}"
    cache.mkdir(parents=True, exist_ok=True)
    with file_lock(folder.with_name(f"{folder.name}.lock")):
        if not folder.is_dir():
            progress(f"downloading Debezium {debezium_version()} by Maven into {cache}")
            with tempfile.TemporaryDirectory(prefix="download-", dir=cache) as work:
                _download(Path(work)).rename(folder)
    return folder


def _download(work: Path) -> Path:
    maven = shutil.which("mvn")
    if maven is None:
        raise BenchError("Debezium is fetched by Maven and there is no `mvn`; or use --no-peer")
    pom = shutil.copy(_POM, work)
    jars = work / "jars"
    answer = subprocess.run(
        [
            maven,
            "--quiet",
            "--batch-mode",
            f"--file={pom}",
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={jars}",
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=_DOWNLOAD_SECONDS,
    )
    if answer.returncode:
        raise BenchError(f"Maven could not fetch Debezium:\n{answer.stdout[-800:]}")
    return jars


class Debezium:
    """A worker that can be started more than once, for one database of one server.

    It keeps its offsets below `folder`. The slot is dropped when `with` is left.
    """

    def __init__(
        self,
        server: Server,
        database: str,
        bootstrap_servers: str,
        tuning: Tuning,
        *,
        jars: Path,
        folder: Path,
    ) -> None:
        self._server = server
        self._folder = folder
        self._jars = jars
        self._worker: LeashedProcess | None = None
        parameters = server.parameters(database)
        self._values = {
            "HOST": parameters["host"],
            "PORT": parameters["port"],
            "USER": parameters["user"],
            "PASSWORD": parameters["password"],
            "DATABASE": database,
            "POLL": str(tuning.poll_ms),
            "LINGER": str(tuning.linger_ms),
            "BOOTSTRAP": bootstrap_servers,
            "DIR": str(folder),
        }

    @contextmanager
    def running(self) -> Iterator[Debezium]:
        """Start the worker, wait until it streams, and stop it at the end of the block."""
        self._values["REST_PORT"] = str(free_ports(1)[0])
        files = [self._fill_in("worker.properties"), self._fill_in("connector.properties")]
        java = shutil.which("java")
        if java is None:
            raise BenchError("Debezium needs Java 17 or newer and there is no `java`")
        self._worker = LeashedProcess(
            [
                java,
                "-Xmx1g",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                "-cp",
                f"{self._jars}/*",
                "org.apache.kafka.connect.cli.ConnectStandalone",
                *map(str, files),
            ],
            log=self._folder / "worker.log",
        )
        try:
            self._await_slot(self._worker)
            yield self
        finally:
            self._worker.stop(timeout=30)

    def _fill_in(self, name: str) -> Path:
        text = (_FILES / name).read_text()
        for key, value in self._values.items():
            text = text.replace(f"@{key}@", value)
        filled = self._folder / name
        filled.touch(mode=0o600)
        filled.write_text(text)
        return filled

    def _await_slot(self, worker: LeashedProcess) -> None:
        deadline = time.monotonic() + _START_SECONDS
        with self._server.connect() as connection:
            while not connection.execute(
                "select 1 from pg_replication_slots where slot_name = %s and active", [_SLOT]
            ).fetchone():
                if not worker.alive or time.monotonic() > deadline:
                    raise BenchError(f"Debezium does not stream:\n{worker.log_tail(15)}")
                time.sleep(0.05)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # The slot would keep the database and its WAL.
        with self._server.connect() as connection:
            connection.execute(
                "select pg_terminate_backend(active_pid, 10000) from pg_replication_slots "
                "where slot_name = %s and active",
                [_SLOT],
            )
            connection.execute(
                "select pg_drop_replication_slot(slot_name) from pg_replication_slots "
                "where slot_name = %s",
                [_SLOT],
            )

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of the worker so far."""
        assert self._worker is not None
        return cpu_seconds(self._worker.pid)

    def peak_mib(self) -> float:
        """Return the worker's largest resident size so far."""
        assert self._worker is not None
        return peak_mib(self._worker.pid)

    @property
    def alive(self) -> bool:
        """Whether the worker runs."""
        return self._worker is not None and self._worker.alive

    def log_tail(self) -> str:
        """Return the end of what the worker said."""
        return self._worker.log_tail(15) if self._worker is not None else ""
