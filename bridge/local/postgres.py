"""A local PostgreSQL server, on a free port of the loopback interface."""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from bridge.errors import LocalError
from bridge.local.ports import LOOPBACK, free_ports
from bridge.local.postgres_cluster import PostgresCluster
from bridge.local.postgres_programs import PostgresPrograms
from bridge.local.process import LeashedProcess

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

Mode = Literal["smart", "fast", "immediate"]

_SIGNALS: dict[Mode, signal.Signals] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}
_START_SECONDS = 90.0
_START_ATTEMPTS = 5
_PORT_TAKEN = "Address already in use"


class LocalPostgres:
    """A server that `with` starts and ends, or `start` and `close`.

    `data` keeps the database, its password and its port from one start to the next; without it a
    private folder is made and removed again. `durable=False` turns off fsync: for tests only, a
    crash of the machine loses the data. `logical_wal` sets `wal_level=logical`. `settings` are
    further server settings by name. Raises LocalError.
    """

    def __init__(
        self,
        *,
        data: Path | None = None,
        programs: PostgresPrograms | None = None,
        durable: bool = True,
        logical_wal: bool = False,
        shared_buffers: str = "128MB",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._programs = programs or PostgresPrograms.embedded()
        self._private = data is None
        self._folder = data or Path(tempfile.mkdtemp(prefix="outbox-bridge-postgres-"))
        self._durable = durable
        self._settings = {
            "listen_addresses": LOOPBACK,
            "unix_socket_directories": "",
            "max_connections": "200",
            "max_prepared_transactions": "50",
            "shared_buffers": shared_buffers,
            "wal_level": "logical" if logical_wal else "replica",
            **({} if durable else {"fsync": "off", "full_page_writes": "off"}),
            **(settings or {}),
        }
        self._cluster = PostgresCluster(self._folder, self._programs)
        self._process: LeashedProcess | None = None
        self._port: int | None = None

    @property
    def version(self) -> str:
        """The server's version, such as `18.6`."""
        return self._programs.version

    @property
    def programs(self) -> PostgresPrograms:
        """The programs of the server's version: psql, pg_dump, pgbench and so on."""
        return self._programs

    @property
    def url(self) -> str:
        """The URL of the database `postgres`, as superuser; raises LocalError before `start`."""
        if self._port is None:
            raise LocalError("The local PostgreSQL was not started yet.")
        return f"postgresql://postgres:{self._cluster.password()}@{LOOPBACK}:{self._port}/postgres"

    @property
    def process(self) -> LeashedProcess:
        """The server's process; raises LocalError while there is none."""
        if self._process is None:
            raise LocalError("The local PostgreSQL is not running.")
        return self._process

    def describe(self) -> str:
        """Return the name and version for people, such as `PostgreSQL 18.6`."""
        return f"PostgreSQL {self.version}"

    def start(self) -> None:
        """Start the server and return once it accepts connections; keeps its port if possible."""
        self._cluster.create(durable=self._durable)
        wanted = self._port or self._cluster.last_port()
        for _ in range(_START_ATTEMPTS):
            port = free_ports(1, [wanted] if wanted else None)[0]
            if self._started_on(port):
                self._port = port
                self._cluster.remember_port(port)
                return
            wanted = None
        raise LocalError(
            f"The local PostgreSQL found its port taken {_START_ATTEMPTS} times; see "
            f"{self._cluster.log}."
        )

    def _started_on(self, port: int) -> bool:
        options = {**self._settings, "port": str(port)}
        self._process = process = LeashedProcess(
            [
                self._programs.program("postgres"),
                "-D",
                str(self._cluster.folder),
                *(word for name, value in options.items() for word in ("-c", f"{name}={value}")),
            ],
            log=self._cluster.log,
            account=self._cluster.account,
            stop_signal=signal.SIGINT,
            # Killed outright it would leave a shared memory segment behind.
            death_signal=signal.SIGQUIT,
            cwd=self._cluster.folder,
        )
        deadline = time.monotonic() + _START_SECONDS
        while not self._cluster.is_ready(process.pid):
            if not process.alive:
                self._process = None
                end = process.log_tail()
                if _PORT_TAKEN in end:
                    return False
                raise LocalError(f"PostgreSQL ended while starting; {process.log} ends:\n{end}")
            if time.monotonic() > deadline:
                process.kill()
                self._process = None
                raise LocalError(
                    f"PostgreSQL was not ready after {_START_SECONDS:.0f} s; {process.log} ends:\n"
                    f"{process.log_tail()}"
                )
            time.sleep(0.02)
        return True

    def stop(self, mode: Mode = "fast") -> None:
        """Stop the server in one of its own three ways; safe to call twice."""
        process, self._process = self._process, None
        if process is not None:
            process.stop(_SIGNALS[mode])

    def restart(self, mode: Mode = "fast") -> None:
        """Stop and start, on the same port and data."""
        self.stop(mode)
        self.start()

    def kill(self) -> None:
        """End all of the server's processes at once (SIGKILL), as a crash does."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()

    def suspend(self) -> None:
        """Freeze the server: connections stay open and nothing answers (SIGSTOP)."""
        self.process.suspend()

    def resume(self) -> None:
        """Let a suspended server go on (SIGCONT)."""
        self.process.resume()

    def close(self) -> None:
        """Stop the server and remove its folder if it is a private one; safe to call twice."""
        self.stop("immediate" if self._private else "fast")
        if self._private:
            shutil.rmtree(self._folder, ignore_errors=True)

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
