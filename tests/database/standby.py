"""Streaming standbys of a local PostgreSQL, to fail over to, and back."""

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
_HAS_ALL = "select pg_last_wal_replay_lsn() >= %s::pg_lsn"
_IS_SYNCHRONOUS = "select count(*) = 1 from pg_stat_replication where sync_state = 'sync'"


class Standby:
    """`url` and `primary_url` are a superuser's; read-only until `promote`."""

    def __init__(self, url: str, primary_url: str) -> None:
        self.url = url
        self._primary_url = primary_url

    @property
    def url_of_both(self) -> str:
        """A URL that names this one and then the primary."""
        parts = urlsplit(self._primary_url)
        login, _, primary = parts.netloc.rpartition("@")
        own = urlsplit(self.url).netloc.rpartition("@")[2]
        return urlunsplit(parts._replace(netloc=f"{login}@{own},{primary}"))

    def is_up(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def make_synchronous(self) -> None:
        """Let the primary answer no commit before it is here, and wait for what it has already."""
        with (
            psycopg.connect(self._primary_url, autocommit=True) as primary,
            psycopg.connect(self.url, autocommit=True) as own,
        ):
            primary.execute("alter system set synchronous_standby_names = '*'")
            primary.execute("select pg_reload_conf()")
            wait_until(
                lambda: primary.execute(_IS_SYNCHRONOUS).fetchone() == (True,),
                "the primary waits for its standby",
                _SECONDS,
            )
            lsn = primary.execute("select pg_current_wal_flush_lsn()::text").fetchone()
            assert lsn
            wait_until(
                lambda: own.execute(_HAS_ALL, lsn).fetchone() == (True,),
                "the standby has caught up",
                _SECONDS,
            )

    def promote(self) -> None:
        """Make it the primary."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("select pg_promote(true, 60)")


class CopiedStandby(Standby):
    """One with a server of its own, which `stop` ends."""

    def __init__(self, url: str, primary_url: str, process: LeashedProcess) -> None:
        super().__init__(url, primary_url)
        self._process = process

    def stop(self, number: signal.Signals) -> None:
        self._process.stop(number)


@contextmanager
def standby_of(
    primary: LocalPostgres, folder: Path, stop_signal: signal.Signals
) -> Iterator[CopiedStandby]:
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
        parts = urlsplit(primary.url)
        netloc = f"{parts.username}:{parts.password}@{LOOPBACK}:{port}"
        standby = CopiedStandby(urlunsplit(parts._replace(netloc=netloc)), primary.url, process)
        wait_until(standby.is_up, f"the standby accepts connections, see {log}", _SECONDS)
        yield standby
    finally:
        process.stop()


def rejoin(old: LocalPostgres, data: Path, new: Standby, folder: Path) -> Standby:
    """Start a former primary, which has crashed, as the standby of the new one, on its old port.

    It needs `wal_log_hints` (or data checksums) and must have been started before.
    """
    with psycopg.connect(new.url, autocommit=True) as connection:
        # Until then PostgreSQL 14 and 15 tell pg_rewind the timeline from before the promotion.
        connection.execute("checkpoint")
    run_to_end(
        LeashedProcess(
            [
                *(old.programs.program("pg_rewind"), f"--target-pgdata={data}"),
                *(f"--source-server={new.url}", "--write-recovery-conf"),
            ],
            log=folder / "rewind.log",
            account=server_account([old.programs.folder, data, folder]),
            cwd=data,
        ),
        what="rewinding the former primary",
        timeout=_SECONDS,
    )
    port = urlsplit(old.url).port
    old.start()
    assert urlsplit(old.url).port == port, "somebody else has taken the former primary's port"
    return Standby(old.url, new.url)
