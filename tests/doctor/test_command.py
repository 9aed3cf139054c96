from __future__ import annotations

import json
from typing import TYPE_CHECKING

import psycopg

from bridge.doctor import CHECKS
from tests.fixtures.postgres import on_one_server

if TYPE_CHECKING:
    from tests.fixtures.cli import RunCliFunction

_NOBODY = {"OUTBOX_BRIDGE_KAFKA_BOOTSTRAP_SERVERS": "localhost:1"}


@on_one_server
def test_exit_codes_tell_ok_problem_and_cannot_check(
    database_url: str, run_cli: RunCliFunction
) -> None:
    run_cli("doctor", "migrations", "queue")
    done = run_cli("doctor", "queue", "kafka", "--timeout", "5", env=_NOBODY, check=False)
    assert done.returncode == 3
    assert "1 ok, 0 problem, 1 unknown" in done.stdout
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("drop index app_outbox_queue_due_idx")
    done = run_cli("doctor", "migrations", "kafka", "--timeout", "5", env=_NOBODY, check=False)
    assert done.returncode == 1
    assert "app_outbox_queue_due_idx is missing" in done.stdout
    assert "next step" in done.stdout
    assert "docs/runbook.md" in done.stderr


@on_one_server
def test_json_has_every_finding_and_checks_can_be_left_out(
    database_url: str, run_cli: RunCliFunction
) -> None:
    skipped = [part for name in list(CHECKS)[3:] for part in ("--skip", name)]
    document = json.loads(run_cli("doctor", "--json", *skipped).stdout)
    assert document["verdicts"] == {"ok": 3, "problem": 0, "unknown": 0}
    assert [one["check"] for one in document["findings"]] == list(CHECKS)[:3]
    assert document["findings"][0].keys() == {"check", "verdict", "evidence", "next_step"}


def test_a_check_that_does_not_exist_is_refused_with_the_list(run_cli: RunCliFunction) -> None:
    done = run_cli("doctor", "quue", check=False)
    assert done.returncode == 2
    assert "no check is named quue; there are: database, migrations" in done.stderr


def test_nothing_of_a_password_is_shown(run_cli: RunCliFunction) -> None:
    url = "postgresql://somebody:hunter2@localhost:1/none"
    done = run_cli("doctor", "--timeout", "1", "--database-url", url, env=_NOBODY, check=False)
    assert done.returncode == 3
    assert "hunter2" not in done.stdout + done.stderr
