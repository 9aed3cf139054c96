"""`outbox-bridge prune`, and relays that prune by themselves."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import psycopg
import pytest

from bridge.database.schema_files import read_schema_file
from bridge.database.template import render_script
from tests.fixtures.postgres import on_one_server
from tests.fixtures.relays import PATIENCE
from tests.fixtures.waiting import wait_until
from tests.retention.conftest import Conn, ids

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.cli import RunCliFunction
    from tests.fixtures.kafka import NewTopicFunction
    from tests.fixtures.relays import Outbox, StartRelayFunction
    from tests.retention.conftest import AddFunction

pytestmark = on_one_server


def test_prune_counts_first_and_deletes_then(
    conn: Conn, add: AddFunction, run_cli: RunCliFunction
) -> None:
    add("SENT", days=8, count=30)
    add("CANCELLED", days=8, count=2)
    kept = add("SENT", days=3)
    expected = {"sent": 30, "cancelled": 2, "failed": 0, "audit": 0}
    dry = json.loads(run_cli("prune", "--dry-run", "--json").stdout)
    assert dry == {"dry_run": True, **expected}
    assert len(ids(conn)) == 33
    limited = json.loads(run_cli("prune", "--limit", "10", "--json").stdout)
    assert limited["sent"] == 10
    done = json.loads(run_cli("prune", "--json").stdout)
    assert done == {"dry_run": False, **expected, "sent": 20}
    assert ids(conn) == kept
    assert "deleted" in run_cli("prune", "--older-than", "2d").stdout
    assert ids(conn) == []


@pytest.mark.parametrize("age", ["soon", "0", "-1d"])
def test_prune_refuses_an_age_that_is_none(
    conn: Conn, add: AddFunction, run_cli: RunCliFunction, age: str
) -> None:
    rows = add("SENT", days=8)
    done = run_cli("prune", f"--older-than={age}", check=False)
    assert done.returncode == 2
    assert "retention.sent" in done.stderr
    assert ids(conn) == rows


def test_prune_works_as_the_relays_role(
    conn: Conn, add: AddFunction, run_cli: RunCliFunction, database_url: str
) -> None:
    add("SENT", days=8, count=3)
    conn.execute(render_script(read_schema_file("roles.sql"), "public").encode())
    url = psycopg.conninfo.make_conninfo(database_url, options="-c role=outbox_relay")
    archived = {"OUTBOX_BRIDGE_RETENTION_ARCHIVE": "table"}
    run_cli("prune", "--database-url", url, env=archived)
    assert ids(conn) == []
    assert len(ids(conn, "app_outbox_archive")) == 3


def test_one_relay_prunes_while_both_send(
    outbox: Outbox, start_relay: StartRelayFunction, new_topic: NewTopicFunction, tmp_path: Path
) -> None:
    file = tmp_path / "archive.jsonl"
    relays = [
        start_relay(
            retention_interval=0.2,
            retention_sent=0.1,
            retention_batch_rows=50,
            retention_archive="file",
            retention_archive_file=file,
        )
        for _ in range(2)
    ]
    topic = new_topic()
    rows = outbox.add(500, topic)
    wait_until(lambda: outbox.counts() == {}, "every row is sent and pruned", PATIENCE)
    written = [json.loads(line) for line in file.read_text().splitlines()]
    assert sorted(row["outbox_id"] for row in written) == rows
    assert {row["status"] for row in written} == {"SENT"}
    wait_until(
        lambda: any(relay.events("rows pruned") for relay in relays), "one tells of it", PATIENCE
    )
    leader, other = sorted(relays, key=lambda relay: not relay.events("rows pruned"))
    assert other.events("rows pruned") == []
    # The next in line takes over.
    leader.stop()
    outbox.add(10, topic, prefix="later")
    other.wait_for_event("rows pruned")
    other.stop()


def test_a_relay_whose_archive_cannot_be_written_says_so_once_and_goes_on(
    outbox: Outbox, start_relay: StartRelayFunction, new_topic: NewTopicFunction, tmp_path: Path
) -> None:
    folder = tmp_path / "archive"
    relay = start_relay(
        retention_interval=0.1,
        retention_sent=0.1,
        retention_archive="file",
        retention_archive_file=folder / "a.jsonl",
    )
    topic = new_topic()
    ids_ = outbox.add(10, topic)
    outbox.wait_for("SENT", ids_)
    assert "a.jsonl" in relay.wait_for_event("duty failed")["reason"]
    outbox.wait_for("SENT", outbox.add(10, topic, prefix="more"))
    folder.mkdir()
    wait_until(lambda: outbox.counts() == {}, "everything is pruned", PATIENCE)
    relay.wait_for_event("duty works again")
    assert len(relay.events("duty failed")) == 1
    relay.stop()
