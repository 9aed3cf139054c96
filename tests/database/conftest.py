from __future__ import annotations

import os
import shutil
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import pytest

from bridge.local.account import server_account
from bridge.local.ports import LOOPBACK, free_ports
from bridge.local.process import LeashedProcess
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fixtures.postgres import PostgresServer


@dataclass(frozen=True)
class Pooler:
    """A PgBouncer in transaction mode: `url` leads through it, `direct_url` past it."""

    url: str
    direct_url: str


@pytest.fixture
def pooler(postgres: PostgresServer, database_url: str, tmp_path: Path) -> Iterator[Pooler]:
    """A PgBouncer before this test's database, whose two server sessions all clients share."""
    program = shutil.which("pgbouncer", path=f"{os.defpath}:/usr/sbin")
    if program is None:
        pytest.skip("pgbouncer is missing; as root run: apt-get install -y pgbouncer")
    direct = urlsplit(database_url)
    (port,) = free_ports(1)
    account = server_account([tmp_path])
    settings = tmp_path / "pgbouncer.ini"
    settings.write_text(
        f"""
[databases]
* = host={direct.hostname} port={direct.port} user={direct.username} password={direct.password}
[pgbouncer]
listen_addr = {LOOPBACK}
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 2
max_client_conn = 100
"""
    )
    if account is not None:
        os.chown(settings, account.uid, account.gid)
        settings.chmod(0o600)
    process = LeashedProcess(
        [program, str(settings)], log=tmp_path / "pgbouncer.log", account=account
    )

    def is_up() -> bool:
        with socket.socket() as client:
            return client.connect_ex((LOOPBACK, port)) == 0

    wait_until(is_up, "pgbouncer listens")
    netloc = f"{direct.username}:{direct.password}@{LOOPBACK}:{port}"
    yield Pooler(urlunsplit(direct._replace(netloc=netloc)), database_url)
    process.stop()
