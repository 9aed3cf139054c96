"""The local PostgreSQL, in each version that the tests run on."""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING

import psycopg
import pytest

from bridge.errors import LocalError
from bridge.local import postgres as postgres_module
from bridge.local.account import Account, server_account
from bridge.local.ports import LOOPBACK, free_ports
from bridge.local.postgres import LocalPostgres
from bridge.local.postgres_programs import PostgresPrograms
from bridge.local.process import LeashedProcess, run_to_end

if TYPE_CHECKING:
    from pathlib import Path
    from typing import LiteralString

    from tests.fixtures.postgres import PostgresServer


@pytest.fixture
def programs(postgres: PostgresServer) -> PostgresPrograms:
    return postgres.local.programs if postgres.local else PostgresPrograms.embedded()


def value(url: str, query: LiteralString) -> object:
    with psycopg.connect(url, autocommit=True, connect_timeout=60) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]


def test_every_way_to_end_it_keeps_data_and_address(own_postgres: LocalPostgres) -> None:
    url = own_postgres.url
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create table kept as select 7 as number")
        own_postgres.kill()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("select 1")
    own_postgres.start()
    assert value(url, "select number from kept") == 7
    for mode in ("fast", "immediate", "smart"):
        own_postgres.restart(mode)
        assert own_postgres.url == url
        assert value(url, "select number from kept") == 7


def test_a_suspended_server_is_silent_until_it_is_resumed(own_postgres: LocalPostgres) -> None:
    with psycopg.connect(own_postgres.url, autocommit=True) as connection:
        own_postgres.suspend()
        connection.pgconn.send_query(b"select 1")
        # The kernel still takes the connection, and nobody answers on it.
        with pytest.raises(psycopg.OperationalError, match="timeout expired"):
            psycopg.connect(own_postgres.url, connect_timeout=2)
        connection.pgconn.consume_input()
        assert connection.pgconn.is_busy()
        own_postgres.resume()
        assert connection.pgconn.get_result() is not None
        assert connection.pgconn.get_result() is None


def test_defaults_are_durable_and_know_prepared_transactions(
    programs: PostgresPrograms, tmp_path: Path
) -> None:
    with LocalPostgres(data=tmp_path / "pg", programs=programs) as local:
        url = local.url
        assert value(url, "show fsync") == "on"
        assert value(url, "show full_page_writes") == "on"
        assert value(url, "show wal_level") == "replica"
        assert value(url, "show listen_addresses") == LOOPBACK
        assert value(url, "show server_encoding") == "UTF8"
        assert value(url, "select current_setting('max_prepared_transactions')::int > 0") is True
        assert value(url, "show data_checksums") in ("on", "off")


def test_logical_wal_comes_on_request(programs: PostgresPrograms) -> None:
    with LocalPostgres(programs=programs, durable=False, logical_wal=True) as local:
        assert value(local.url, "show wal_level") == "logical"
        assert value(local.url, "show fsync") == "off"


def test_a_private_folder_is_removed(programs: PostgresPrograms) -> None:
    with LocalPostgres(programs=programs, durable=False) as local:
        folder = local.process.log.parent
        assert folder.is_dir()
    assert not folder.exists()


def test_a_taken_port_gives_way_to_another(programs: PostgresPrograms, tmp_path: Path) -> None:
    local = LocalPostgres(data=tmp_path / "pg", programs=programs, durable=False)
    with local:
        before = local.url
    port = int(before.rpartition(":")[2].partition("/")[0])
    with socket.create_server((LOOPBACK, port)), local:
        assert local.url != before
        assert value(local.url, "select 1") == 1


def test_a_port_taken_between_the_look_and_the_start_is_tried_again(
    programs: PostgresPrograms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        answers = [[taken.getsockname()[1]], free_ports(1)]
        monkeypatch.setattr(postgres_module, "free_ports", lambda *_: answers.pop(0))
        with LocalPostgres(data=tmp_path / "pg", programs=programs, durable=False) as local:
            assert value(local.url, "select 1") == 1
    assert answers == []


def test_an_interrupted_creation_leaves_no_ruin(programs: PostgresPrograms, tmp_path: Path) -> None:
    half_made = tmp_path / "pg" / "cluster.new"
    half_made.mkdir(parents=True)
    (half_made / "PG_VERSION").write_text("half")
    with LocalPostgres(data=tmp_path / "pg", programs=programs, durable=False) as local:
        assert value(local.url, "select 1") == 1
    assert not half_made.exists()


def test_data_of_another_major_version_are_left_alone(
    programs: PostgresPrograms, tmp_path: Path
) -> None:
    (tmp_path / "pg" / "cluster").mkdir(parents=True)
    (tmp_path / "pg" / "cluster" / "PG_VERSION").write_text("9\n")
    local = LocalPostgres(data=tmp_path / "pg", programs=programs)
    with pytest.raises(LocalError, match=r"holds a PostgreSQL 9 .*--data"):
        local.start()


def test_a_server_that_does_not_start_says_why(programs: PostgresPrograms, tmp_path: Path) -> None:
    local = LocalPostgres(
        data=tmp_path / "pg", programs=programs, durable=False, settings={"work_mem": "nonsense"}
    )
    with pytest.raises(LocalError, match=r"(?s)ended while starting.*work_mem"):
        local.start()


def test_the_server_runs_from_a_folder_that_others_may_not_enter(
    programs: PostgresPrograms, tmp_path: Path
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with LocalPostgres(data=closed / "pg", programs=programs, durable=False) as local:
        assert value(local.url, "select 1") == 1
    assert closed.stat().st_mode & 0o777 == 0o700


def test_programs_are_found_in_a_folder_that_others_may_not_enter(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    program = closed / "program"
    program.touch(mode=0o755)
    run_to_end(
        LeashedProcess(
            # As initdb looks for postgres: by the real user's rights.
            [
                *(sys.executable, "-c"),
                "import os, sys; sys.exit(not os.access(sys.argv[1], os.X_OK))",
                str(program),
            ],
            log=tmp_path / "log",
            account=server_account([closed]),
        ),
        what="looking for a program",
        timeout=30,
    )


def test_root_hands_the_server_to_an_ordinary_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridge.local.account.os.geteuid", lambda: 0)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    account = server_account([closed])
    assert isinstance(account, Account)
    assert account.uid != 0
    assert account.keep_reach
    monkeypatch.setattr("bridge.local.account.os.geteuid", lambda: 1000)
    assert server_account([closed]) is None
