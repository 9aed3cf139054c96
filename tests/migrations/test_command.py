"""`outbox-bridge migrate` as a real process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import psycopg

from bridge.database.schema_files import read_migrations

if TYPE_CHECKING:
    from tests.fixtures.cli import RunCliFunction


def test_the_whole_round(run_cli: RunCliFunction, empty_database_url: str) -> None:
    refused = run_cli("migrate", "verify", "--schema", "My Schema", check=False)
    assert refused.returncode == 3
    assert "migrate up --schema 'My Schema'" in refused.stderr
    done = run_cli("migrate", "up", "--schema", "My Schema")
    names = [(migration.version, migration.name) for migration in read_migrations()]
    assert done.stdout == "".join(f"applied {number:04d}_{name}\n" for number, name in names)
    assert run_cli("migrate", "up", "--schema", "My Schema").stdout == "nothing to do\n"
    run_cli("migrate", "verify", "--schema", "My Schema")
    status = json.loads(run_cli("migrate", "status", "--schema", "My Schema", "--json").stdout)
    assert status["schema"] == "My Schema"
    assert [m["state"] for m in status["migrations"]] == ["applied"] * len(names)
    down = run_cli("migrate", "down", "--to", "0", "--yes", "--schema", "My Schema", "--json")
    assert json.loads(down.stdout)["removed"] == [
        {"version": number, "name": name} for number, name in reversed(names)
    ]
    table = run_cli("migrate", "status", "--schema", "My Schema").stdout
    assert table.count("pending") == len(names)


def test_down_needs_a_target_and_yes(run_cli: RunCliFunction, database_url: str) -> None:
    with psycopg.connect(database_url) as conn:
        conn.execute("select outbox_enqueue('k', 'e', 'd', '1')")
    for args, text in ((["--yes"], "--to N"), (["--to", "0"], "repeat the command with --yes")):
        refused = run_cli("migrate", "down", *args, check=False)
        assert refused.returncode == 3
        assert text in refused.stderr
    with psycopg.connect(database_url) as conn:
        assert conn.execute("select count(*) from app_outbox").fetchone() == (1,)


def test_sql_and_roles_are_printed_without_a_database(
    run_cli: RunCliFunction, empty_database_url: str
) -> None:
    nowhere = {"OUTBOX_BRIDGE_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/nothing"}
    up = run_cli("migrate", "sql", "--schema", "messaging", env=nowhere).stdout
    roles = run_cli("migrate", "roles", "--schema", "messaging", env=nowhere).stdout
    down = run_cli("migrate", "sql", "--down", "--to", "0", "--schema", "messaging", env=nowhere)
    with psycopg.connect(empty_database_url) as conn:
        conn.execute(up.encode())
        conn.execute(roles.encode())
        conn.commit()
        run_cli("migrate", "verify", "--schema", "messaging")
        conn.execute(down.stdout.encode())
    assert run_cli("migrate", "verify", "--schema", "messaging", check=False).returncode == 3


def test_unreachable_database_is_a_failure_not_a_wrong_state(run_cli: RunCliFunction) -> None:
    url = "postgresql://nobody:secret@127.0.0.1:1/nothing"
    failed = run_cli("migrate", "up", "--database-url", url, check=False)
    assert failed.returncode == 1
    assert "cannot connect" in failed.stderr
    assert "secret" not in failed.stderr
