"""The inbox is a set of migrations of its own, beside the outbox or without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge.consumer import Inbox
from bridge.consumer.retention import prune
from bridge.database.migration_sets import INBOX, migration_set
from bridge.database.migrations import Migrator
from bridge.database.schema_files import read_migrations, read_schema_file
from bridge.database.template import render_script
from bridge.errors import SchemaError
from tests.fixtures.postgres import on_one_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.cli import RunCliFunction
    from tests.fixtures.postgres import PostgresServer

Connection = psycopg.Connection[tuple[Any, ...]]
SCHEMA = "My Inbox"
NAMES = [f"{m.version:04d}_{m.name}" for m in read_migrations(chosen=INBOX)]


@on_one_server
def test_the_whole_round(run_cli: RunCliFunction, empty_database_url: str) -> None:
    """Up, verify, sql, down; the outbox in the same schema is another matter."""
    refused = run_cli("migrate", "verify", "--set", "inbox", "--schema", SCHEMA, check=False)
    assert refused.returncode == 3
    assert "migrate up --set inbox --schema 'My Inbox'" in refused.stderr
    up = run_cli("migrate", "up", "--set", "inbox", "--schema", SCHEMA)
    assert up.stdout == "".join(f"applied {name}\n" for name in NAMES)
    script = run_cli("migrate", "sql", "--set", "inbox", "--schema", "elsewhere").stdout
    with psycopg.connect(empty_database_url, autocommit=True) as conn:
        outbox, inbox = Migrator(conn, SCHEMA), Migrator(conn, SCHEMA, chosen=INBOX)
        assert inbox.up() == []
        outbox.up()
        outbox.verify()
        inbox.verify()
        assert [state.state for state in inbox.status()] == ["applied"] * len(NAMES)
        conn.execute(script.encode())
        Migrator(conn, "elsewhere", chosen=INBOX).verify()
        conn.execute('alter table "My Inbox".app_inbox drop constraint app_inbox_pkey')
        with pytest.raises(SchemaError, match=r"constraint app_inbox\.app_inbox_pkey is missing"):
            inbox.verify()
        down = run_cli(
            "migrate", "down", "--set", "inbox", "--to", "0", "--yes", "--schema", SCHEMA
        )
        assert down.stdout == "".join(f"removed {name}\n" for name in reversed(NAMES))
        outbox.verify()
        left = "select to_regclass('\"My Inbox\".app_inbox_migration')"
        assert conn.execute(left).fetchone() == (None,)


def test_unknown_set_is_refused() -> None:
    with pytest.raises(SchemaError, match="outbox and inbox"):
        migration_set("mailbox")


@pytest.fixture
def granted(postgres: PostgresServer) -> Iterator[Connection]:
    """A database whose inbox has the roles; run twice, as after each migration."""
    url = postgres.create_database()
    with psycopg.connect(url, autocommit=True) as conn:
        Migrator(conn, SCHEMA, chosen=INBOX).up()
        for _ in range(2):
            conn.execute(render_script(read_schema_file("roles.sql", INBOX), SCHEMA).encode())
        yield conn
    postgres.drop_database(url)


async def test_roles_may_do_what_their_part_does_and_nothing_else(granted: Connection) -> None:
    inbox = Inbox(schema=SCHEMA, consumer="billing", retention=600)
    granted.execute("set role inbox_consumer")
    with granted.transaction():
        assert inbox.receive(granted, message_key="a").is_new
        inbox.keep_result(granted, "a", {"n": 1})
        assert inbox.receive(granted, message_key="a").result == {"n": 1}
        entries = [inbox.entry(key, "e", b"1") for key in "bca"]
        many = granted.execute(inbox.statement("enter_inbox_many"), inbox.entries_of(entries))
        assert sorted(key for (key,) in many.fetchall()) == ["b", "c"]
    Migrator(granted, SCHEMA, chosen=INBOX).check_compatible()
    granted.execute("set role none")
    granted.execute(
        "update \"My Inbox\".app_inbox set received_at = now() - interval '1 h' "
        "where message_key <> 'c'"
    )
    async with await psycopg.AsyncConnection.connect(
        granted.info.dsn, password=granted.info.password, autocommit=True
    ) as conn:
        await conn.execute("set role inbox_consumer")
        assert await prune(conn, inbox) == 2
    refused = {
        "inbox_consumer": [
            "update app_inbox set message_key = 'x'",
            "update app_inbox set content_hash = sha256('')",
            "truncate app_inbox",
            "delete from app_inbox_migration",
            "create table mine (id integer)",
        ],
        "inbox_reader": ["delete from app_inbox", "update app_inbox set result_json = null"],
    }
    granted.execute('set search_path = "My Inbox"')
    for role, statements in refused.items():
        granted.execute(f"set role {role}".encode())
        assert granted.execute("select count(*) from app_inbox").fetchone() == (1,)
        for statement in statements:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                granted.execute(statement.encode())


def test_hot_statements_use_their_indexes(granted: Connection) -> None:
    """Also before the table was ever analysed: nothing here may read all of it."""
    granted.execute('set search_path = "My Inbox", public')
    granted.execute(
        "insert into app_inbox (consumer, message_key, content_hash, event_type, topic, "
        "partition_number, record_offset) select 'c' || n % 3, 'key-' || n, sha256(''), 'e', 't', "
        "0, n from generate_series(1, 20000) as n"
    )
    inbox = Inbox(schema=SCHEMA, consumer="c1", retention=1)
    plans = {
        "find_inbox": {"consumer": "c1", "message_keys": ["key-1", "key-2"]},
        "keep_inbox_results": inbox.results(["key-1"], [1]),
        "prune_inbox": {"consumer": "c1", "seconds": 1.0, "most": 1000},
    }
    for analysed in (False, True):
        if analysed:
            granted.execute("analyze app_inbox")
        for name, parameters in plans.items():
            statement = b"explain (costs off) " + inbox.statement(name)
            plan = "\n".join(row[0] for row in granted.execute(statement, parameters).fetchall())
            assert "Seq Scan on app_inbox" not in plan, plan
            assert "app_inbox_" in plan, plan
