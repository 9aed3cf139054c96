"""A streaming standby of a local PostgreSQL, to fail over to."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import psycopg

from bridge.local.account import server_account
from bridge.local.ports import LOOPBACK, free_ports
from bridge.local.process import LeashedProcess, run_to_end
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    import signal
    from collections.abc import Iterator
    from pathlib import Path

    from bridge.local.postgres import LocalPostgres

_SECONDS = 60.0


class Standby:
    """`url` is its superuser's; read-only until `promote`."""

    def __init__(self, primary: LocalPostgres, port: int) -> None:
        self._primary = primary
        parts = urlsplit(primary.url)
        self.host = f"{LOOPBACK}:{port}"
        netloc = f"{parts.username}:{parts.password}@{self.host}"
        self.url = urlunsplit(parts._replace(netloc=netloc))

    @property
    def url_of_both(self) -> str:
        """A URL that names this one and then the primary."""
        parts = urlsplit(self._primary.url)
        login, _, primary = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{login}@{self.host},{primary}"))

    def is_up(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def catch_up(self) -> None:
        """Wait until everything that the primary has committed is here."""
        with psycopg.connect(self._primary.url) as connection:
            lsn = connection.execute("select pg_current_wal_flush_lsn()::text").fetchone()
        assert lsn
        with psycopg.connect(self.url, autocommit=True) as connection:
            wait_until(
                lambda: (
                    connection.execute(
                        "select pg_last_wal_replay_lsn() >= %s::pg_lsn", lsn
                    ).fetchone()
                    == (True,)
                ),
                "the standby has caught up",
                _SECONDS,
            )

    def promote(self) -> None:
        """Make it the primary."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("select pg_promote(true, 60)")


@contextmanager
def standby_of(
    primary: LocalPostgres, folder: Path, stop_signal: signal.Signals
) -> Iterator[Standby]:
    """Copy the primary, start the copy as its streaming standby, end it afterwards."""
    account = server_account([primary.programs.folder, folder])
    home = folder / "standby"
    home.mkdir(mode=0o700)
    if account is not None:
        os.chown(home, account.uid, account.gid)
    data = home / "data"
    log = folder / "standby.log"
    programs = primary.programs
    run_to_end(
        LeashedProcess(
            [
                *(programs.program("pg_basebackup"), f"--pgdata={data}", "--write-recovery-conf"),
                *("--checkpoint=fast", "--wal-method=stream", f"--dbname={primary.url}"),
            ],
            log=log,
            account=account,
            cwd=home,
        ),
        what="copying the primary",
        timeout=_SECONDS,
    )
    (port,) = free_ports(1)
    process = LeashedProcess(
        [
            *(programs.program("postgres"), "-D", str(data), "-c", f"port={port}"),
            *("-c", f"listen_addresses={LOOPBACK}", "-c", "unix_socket_directories="),
            *("-c", "max_connections=200", "-c", "max_prepared_transactions=50"),
        ],
        log=log,
        account=account,
        stop_signal=stop_signal,
        cwd=home,
    )
    try:
        standby = Standby(primary, port)
        wait_until(standby.is_up, f"the standby accepts connections, see {log}", _SECONDS)
        yield standby
    finally:
        process.stop()
