"""`outbox-bridge retry`, `cancel`, `send-now`, `release`, `replay`, `skip`, `edit` and `audit`."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge.cli.app import run
from bridge.database.migrations import Migrator
from tests.fixtures.postgres import on_one_server
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.cli import RunCliFunction, StartCliFunction
    from tests.fixtures.relays import Outbox

# tests/operations runs on every server.
pytestmark = on_one_server

WHY = ("--reason", "a test")


@pytest.fixture
def failed(outbox: Outbox) -> list[int]:
    """Three FAILED rows, the last of which was never handed to Kafka."""
    rows = outbox.add(3, "orders", status="FAILED", last_error_code="MSG_SIZE_TOO_LARGE")
    outbox.execute("update app_outbox set claim_count = 1 where outbox_id < %s", rows[2])
    return rows


def entries(outbox: Outbox) -> list[tuple[Any, ...]]:
    return outbox.query(
        "select outbox_id, action_name, reason, changed_by, source from app_outbox_audit "
        "order by audit_id"
    )


def test_rows_by_id_are_acted_on_without_asking_and_shown(
    outbox: Outbox, failed: list[int], run_cli: RunCliFunction
) -> None:
    done = run_cli("retry", str(failed[0]), str(failed[2]), *WHY)
    lines = [line.split(maxsplit=3) for line in done.stdout.splitlines()]
    assert lines[:3] == [
        ["id", "before", "after", "Kafka"],
        [str(failed[0]), "FAILED", "PENDING", "may have been sent"],
        [str(failed[2]), "FAILED", "PENDING", "never handed to Kafka"],
    ]
    assert done.stdout.endswith("2 rows retried: 1 never handed to Kafka, 1 may have been sent\n")
    user = f"{os.environ.get('USER', 'root')}@{socket.gethostname()}"
    assert [entry[:3] + entry[4:] for entry in entries(outbox)] == [
        (row, "retry", "a test", "cli") for row in (failed[0], failed[2])
    ]
    assert {entry[3].partition("@")[2] for entry in entries(outbox)} == {user.partition("@")[2]}


def test_a_wrong_state_is_named_and_ends_with_3(
    outbox: Outbox, failed: list[int], run_cli: RunCliFunction
) -> None:
    outbox.execute(
        "update app_outbox set status = 'SENT', sent_at = '2026-01-02 03:04:05Z' "
        "where outbox_id = %s",
        failed[0],
    )
    done = run_cli("retry", *map(str, failed[:2]), "99999", *WHY, check=False)
    assert done.returncode == 3
    assert (
        f"outbox_id {failed[0]}: retry target is not FAILED: "
        "it is SENT since 2026-01-02 03:04:05Z\n"
    ) in done.stderr
    assert "outbox_id 99999: there is no such row" in done.stderr
    assert "1 row retried" in done.stdout
    document = json.loads(run_cli("retry", str(failed[0]), *WHY, "--json", check=False).stdout)
    assert (document["changed"], document["refused_count"]) == (0, 1)
    assert document["refused"][0]["outbox_id"] == failed[0]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("retry", "1"), "--reason is missing"),
        (("retry", "1", "--reason", " "), "the reason is blank"),
        (("cancel", *WHY), "no rows are named"),
        (("cancel", "1", "--destination", "a", *WHY), "not both"),
        (("cancel", "--status", "sent", *WHY), "cancel starts from PENDING or FAILED rows"),
        (("replay", "1", "--rows-per-second", "0", *WHY), "rows_per_second is 0"),
        (("edit", "1", *WHY), "nothing is to be changed"),
        (("edit", "1", "--payload", "x", *WHY), "not JSON"),
        (("edit", "1", "--payload", "1", "--tombstone", *WHY), "either --payload or --tombstone"),
        (("skip", "one", *WHY), "Invalid value for 'ID'"),
        (("retry", "--since", "soon", "--status", "failed", *WHY), "--since 'soon'"),
        (("cancel", "1", "--by", " ", *WHY), "--by is blank"),
    ],
)
def test_unusable_arguments_end_with_2(
    outbox: Outbox,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    text: str,
) -> None:
    monkeypatch.setenv("OUTBOX_BRIDGE_DATABASE_URL", outbox.url)
    assert run(arguments) == 2
    written = capsys.readouterr()
    assert written.out == ""
    assert text in " ".join(written.err.split())
    assert entries(outbox) == []


def test_filters_need_yes_where_nobody_can_be_asked(
    outbox: Outbox, failed: list[int], run_cli: RunCliFunction
) -> None:
    chosen = ("retry", "--error", "MSG_SIZE_TOO_LARGE")
    refused = run_cli(*chosen, *WHY, check=False)
    assert refused.returncode == 3
    assert "3 rows match, 1 never handed to Kafka, 2 may have been sent" in refused.stderr
    assert "give --yes" in refused.stderr
    looked = json.loads(run_cli(*chosen, "--dry-run", "--json").stdout)
    assert (looked["matched"], looked["never_sent"], looked["maybe_sent"]) == (3, 1, 2)
    assert looked["by_destination"] == {"orders": 3}
    assert [row["outbox_id"] for row in looked["examples"]] == failed
    shown = run_cli(*chosen, "--dry-run").stdout
    assert shown.startswith("retry: 3 rows would be changed, 1 never handed to Kafka, 2 may")
    assert "never handed to Kafka\n" in shown
    assert outbox.counts() == {"FAILED": 3}
    assert entries(outbox) == []
    done = run_cli(*chosen, "--yes", "--by", "ann", "--limit", "2", *WHY)
    assert done.stdout == "2 rows retried: 0 never handed to Kafka, 2 may have been sent\n"
    assert [entry[3] for entry in entries(outbox)] == ["ann", "ann"]
    assert run_cli("retry", "--destination", "nowhere", *WHY).stdout == "0 rows retried\n"


@pytest.mark.parametrize(("answer", "code"), [("n", 3), ("y", 0)])
def test_filters_ask_on_a_terminal(
    outbox: Outbox, failed: list[int], cli_env: dict[str, str], answer: str, code: int
) -> None:
    terminal, inner = pty.openpty()
    try:
        os.write(terminal, f"{answer}\n".encode())
        done = subprocess.run(
            [sys.executable, "-m", "bridge", "cancel", "--status", "failed", *WHY],
            env=cli_env,
            stdin=inner,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    finally:
        os.close(terminal)
        os.close(inner)
    assert done.returncode == code, done.stderr
    assert "3 rows match" in done.stderr
    assert "cancel them?" in done.stderr
    assert outbox.counts() == {"CANCELLED" if answer == "y" else "FAILED": 3}


def test_an_interrupted_command_says_how_far_it_came_and_goes_on(
    outbox: Outbox, start_cli: StartCliFunction, run_cli: RunCliFunction
) -> None:
    outbox.add(1500, "orders", status="FAILED")
    outbox.execute(
        """
        create table gate ();
        create function wait_there() returns trigger language plpgsql as $$ begin
            while exists (select from pg_class where relname = 'gate') loop
                perform pg_sleep(0.02);
            end loop;
            return new;
        end $$;
        create trigger wait_there before update on app_outbox for each row
        when (old.message_key = 'm-1500') execute function wait_there()
        """
    )
    process = start_cli("retry", "--status", "failed", "--yes", *WHY)
    wait_until(
        lambda: outbox.value(
            "select exists(select from pg_stat_activity where wait_event = 'PgSleep')"
        ),
        "the third batch stands still",
    )
    process.send(signal.SIGINT)
    assert process.wait() == 130
    assert "interrupted: 1000 rows retried; run the same command again" in process.stderr
    outbox.execute("drop table gate")
    assert outbox.counts() == {"PENDING": 1000, "FAILED": 500}
    assert outbox.value("select count(*) from app_outbox_audit") == 1000
    done = run_cli("retry", "--status", "failed", "--yes", *WHY)
    assert done.stdout.startswith("500 rows retried")
    assert "the chain holds" in run_cli("audit", "verify").stdout


def test_every_other_action_works_from_the_command_line(
    outbox: Outbox, run_cli: RunCliFunction, tmp_path: Path
) -> None:
    (later,) = outbox.add(1, "orders", prefix="later", next_run_at="2999-01-01")
    assert "1 row made due" in run_cli("send-now", str(later), *WHY).stdout
    (tmp_path / "new.json").write_text('{"amount":  10}')
    edited = run_cli(
        *("edit", str(later), "--payload", "@new.json", "--to-destination", "other"),
        *("--header", "tenant=b", *WHY),
        env={"OUTBOX_BRIDGE_AUDIT_PAYLOAD": "full"},
    )
    assert "1 row edited: 1 never handed to Kafka" in edited.stdout
    assert outbox.query("select payload_json::text, destination, headers from app_outbox") == [
        ('{"amount":  10}', "other", {"tenant": "b"})
    ]
    kept = outbox.value(
        "select before_state ->> 'payload' from app_outbox_audit where action_name = 'edit'"
    )
    assert kept == '{"number" : 1}'
    outbox.execute("update app_outbox set status = 'PROCESSING', locked_by = 'relay-9'")
    looked = run_cli("release", "--status", "processing", "--stuck-for", "1", "--dry-run").stdout
    assert looked.startswith("release: 0 rows would be changed")
    assert "1 row released" in run_cli("release", str(later), *WHY).stdout
    outbox.execute("update app_outbox set status = 'SENT', claim_count = 1")
    replayed = json.loads(run_cli("replay", str(later), *WHY, "--json").stdout)
    assert replayed["rows"][0]["kafka"] == "was sent"
    assert (
        outbox.value("select headers ->> 'outbox-replay-id' from app_outbox")
        == (replayed["replay_id"])
    )
    skipped = run_cli("skip", str(later), *WHY, check=False)
    assert (skipped.returncode, "holds no ordering key" in skipped.stderr) == (3, True)


def test_the_audit_is_listed_and_verified(
    outbox: Outbox, failed: list[int], run_cli: RunCliFunction
) -> None:
    assert run_cli("audit").stdout == "No entry.\n"
    run_cli("cancel", str(failed[0]), "--by", "ann", "--reason", "a duplicate")
    run_cli("pause", "orders", "--by", "bob", *WHY)
    listed = json.loads(run_cli("audit", "--json").stdout)
    assert [entry["action_name"] for entry in listed["entries"]] == ["pause", "cancel"]
    one = run_cli("audit", "--id", str(failed[0])).stdout.splitlines()
    assert len(one) == 2
    assert "FAILED, may have been sent" in one[1]
    assert "CANCELLED" in one[1]
    assert "ann (" in one[1]
    assert run_cli("audit", "--since", "1h", "--by", "bob", "--limit", "1").stderr.startswith(
        "1 entries listed; go on with --before"
    )
    head = json.loads(run_cli("audit", "verify", "--json").stdout)["head"]
    assert run_cli("audit", "verify", "--head", head).stdout == (
        f"2 entries, the chain holds\nhead {head}\n"
    )
    outbox.execute("alter table app_outbox_audit disable trigger user")
    outbox.execute("update app_outbox_audit set changed_by = 'eve' where audit_id = 1")
    broken = run_cli("audit", "verify", check=False)
    assert broken.returncode == 1
    assert broken.stdout.startswith("2 entries, the chain does not hold\n")
    assert "entry or link was changed" in broken.stdout
    assert run_cli("audit", "verify", "--head", "nonsense", check=False).returncode == 2


def test_an_older_schema_is_named_with_what_the_action_needs(
    empty_database_url: str, run_cli: RunCliFunction
) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as conn:
        Migrator(conn).up(5)
    for command in (("cancel", "1", *WHY), ("audit",), ("audit", "verify")):
        done = run_cli(*command, check=False)
        assert done.returncode == 3
        assert "needs schema version 6" in done.stderr
        assert "outbox-bridge migrate up" in done.stderr
