"""The data folder of a local PostgreSQL: created once, with a password and a remembered port."""

from __future__ import annotations

import os
import secrets
import shutil
from typing import TYPE_CHECKING

from bridge.errors import LocalError
from bridge.local.account import server_account
from bridge.local.process import LeashedProcess, run_to_end

if TYPE_CHECKING:
    from pathlib import Path

    from bridge.local.account import Account
    from bridge.local.postgres_programs import PostgresPrograms

_PID_LINE, _STATUS_LINE, _PID_FILE_LINES = 0, 7, 8
_CREATE_SECONDS = 120.0


class PostgresCluster:
    """`folder` (the server's own), `password`, `port` and `postgres.log` below one folder."""

    def __init__(self, home: Path, programs: PostgresPrograms) -> None:
        self._home = home
        self._programs = programs
        self.folder = home / "cluster"
        self.log = home / "postgres.log"
        self._password = home / "password"
        self._port = home / "port"
        self._account: Account | None = None

    @property
    def account(self) -> Account | None:
        """The account that the server runs under, None for the caller's own."""
        return self._account

    def create(self, *, durable: bool) -> None:
        """Create the cluster where there is none; raises LocalError where another major owns it."""
        self._home.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:
            # The server's account has to pass; what is secret below is closed by itself.
            self._home.chmod(0o711)
        self._account = server_account([self._programs.folder, self._home])
        if self.folder.exists():
            self._check_major()
            return
        # Made under another name and renamed when complete: an interrupted run leaves no ruin.
        fresh = self._home / "cluster.new"
        shutil.rmtree(fresh, ignore_errors=True)
        password_file = self._home / "password.new"
        password_file.unlink(missing_ok=True)
        fresh.mkdir(mode=0o700)
        password_file.touch(mode=0o600)
        password_file.write_text(secrets.token_urlsafe(18) + "\n")
        if self._account is not None:
            for path in (fresh, password_file):
                os.chown(path, self._account.uid, self._account.gid)
        run_to_end(
            LeashedProcess(
                [
                    self._programs.program("initdb"),
                    f"--pgdata={fresh}",
                    "--username=postgres",
                    f"--pwfile={password_file}",
                    "--auth=scram-sha-256",
                    "--encoding=UTF8",
                    "--no-locale",
                    "--no-instructions",
                    *([] if durable else ["--no-sync"]),
                ],
                log=self.log,
                account=self._account,
                cwd=fresh,
            ),
            what="Creating the local PostgreSQL",
            timeout=_CREATE_SECONDS,
        )
        if self._account is not None:
            os.chown(password_file, os.geteuid(), os.getegid())
        password_file.rename(self._password)
        fresh.rename(self.folder)

    def _check_major(self) -> None:
        found = (self.folder / "PG_VERSION").read_text().strip()
        if found != self._programs.major:
            raise LocalError(
                f"{self._home} holds a PostgreSQL {found} and this is {self._programs.version}. "
                "Give another folder (--data), or remove this one if its data are not needed."
            )

    def password(self) -> str:
        """Return the superuser's password."""
        return self._password.read_text().strip()

    def last_port(self) -> int | None:
        """Return the port of the last start, None before the first."""
        return int(self._port.read_text()) if self._port.exists() else None

    def remember_port(self, port: int) -> None:
        """Keep the port for the next start."""
        self._port.write_text(f"{port}\n")

    def is_ready(self, pid: int) -> bool:
        """Whether the server with this process id accepts connections."""
        # Its own status line, because a connection attempt would leave an error in its log.
        try:
            lines = (self.folder / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return (
            len(lines) >= _PID_FILE_LINES
            and lines[_PID_LINE].strip() == str(pid)
            and lines[_STATUS_LINE].strip() == "ready"
        )
