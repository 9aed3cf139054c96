"""Writers at the speed of C: pgbench with a script of its own."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING, Self

from tests.bench.figures import BenchError

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from tests.bench.lab import Server

_START_SECONDS = 30.0
_DATABASE_VARIABLES = {
    "host": "PGHOST",
    "port": "PGPORT",
    "user": "PGUSER",
    "password": "PGPASSWORD",
    "dbname": "PGDATABASE",
}


class Writers:
    """Connections that run a script for some seconds.

    With `rate` the transactions start at that many a second, at random moments, whatever became of
    the earlier ones (an open loop); without it each connection starts the next when one is done.
    """

    def __init__(
        self,
        server: Server,
        database: str,
        script: str,
        *,
        connections: int,
        seconds: int,
        folder: Path,
        rate: int | None = None,
    ) -> None:
        self.seconds = seconds
        file = folder / "writers.sql"
        file.write_text(script)
        parameters = server.parameters(database)
        self._process = subprocess.Popen(
            [
                server.local.programs.program("pgbench"),
                "--no-vacuum",
                "--protocol=prepared",
                f"--client={connections}",
                f"--time={seconds}",
                f"--file={file}",
                *([f"--rate={rate}"] if rate else []),
            ],
            env={
                variable: parameters[name]
                for name, variable in _DATABASE_VARIABLES.items()
                if name in parameters
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def commits(self) -> int:
        """Wait for the end and return how many transactions were committed."""
        try:
            output, errors = self._process.communicate(timeout=self.seconds + _START_SECONDS)
        except subprocess.TimeoutExpired as late:
            raise BenchError(f"pgbench did not end {_START_SECONDS:.0f} s after its time") from late
        found = re.search(r"transactions actually processed: (\d+)", output)
        if self._process.returncode or found is None:
            raise BenchError(f"pgbench failed:\n{errors[-800:]}")
        return int(found[1])
