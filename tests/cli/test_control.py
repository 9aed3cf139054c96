from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.fixtures.postgres import on_one_server

if TYPE_CHECKING:
    from tests.fixtures.cli import RunCliFunction
    from tests.fixtures.kafka import KafkaBroker

# tests/control/test_switches.py runs on every server.
pytestmark = on_one_server

WHY = ("--reason", "a test")


def audit(url: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as conn:
        return conn.execute(
            "select action_name, after_state ->> 'destination', reason, source "
            "from app_outbox_audit order by audit_id"
        ).fetchall()


def test_each_command_says_what_it_did_and_what_else_holds(
    database_url: str, run_cli: RunCliFunction
) -> None:
    assert run_cli("pause", "orders", *WHY, "--by", "ann").stdout == "orders: paused\n"
    again = run_cli("pause", "orders", *WHY).stdout.splitlines()
    assert again[0] == "orders: paused already"
    assert again[1].startswith("  by ann since ")
    assert run_cli("pause", *WHY, "--by", "bob").stdout.startswith("all destinations: paused\n")
    resumed = run_cli("resume", "orders", *WHY).stdout.splitlines()
    assert resumed[0] == "orders: resumed"
    assert resumed[1].startswith("  also set: all destinations: paused, by bob since ")
    assert run_cli("resume", "orders", *WHY).stdout.startswith("orders: not paused, nothing to")
    assert run_cli("resume", *WHY).stdout == "all destinations: resumed\n"
    limited = run_cli("limit", "orders", "--rows-per-second", "5", *WHY).stdout
    assert limited == "orders: rows a second 5 (was none)\n"
    assert (
        run_cli("limit", "orders", "--off", *WHY).stdout == "orders: rows a second none (was 5)\n"
    )
    assert "rows a claim 9 (was none)" in run_cli("batch", "--rows", "9", *WHY).stdout
    night = run_cli("quiet", "push", "--window", "23:00-06:00 asia/tokyo", *WHY).stdout
    assert night.startswith("push: quiet hours 23:00-06:00 Asia/Tokyo (was none)\n")
    assert audit(database_url) == [
        ("pause", "orders", "a test", "cli"),
        ("pause", "*", "a test", "cli"),
        ("resume", "orders", "a test", "cli"),
        ("resume", "*", "a test", "cli"),
        ("limit", "orders", "a test", "cli"),
        ("limit", "orders", "a test", "cli"),
        ("batch", "*", "a test", "cli"),
        ("quiet", "push", "a test", "cli"),
    ]


def test_json_carries_the_change_and_what_is_set(
    database_url: str, run_cli: RunCliFunction
) -> None:
    run_cli("pause", *WHY)
    document = json.loads(
        run_cli("limit", "orders", "--rows-per-second", "5", *WHY, "--json").stdout
    )
    assert {name: document[name] for name in ("destination", "switch", "changed")} == {
        "destination": "orders",
        "switch": "rows_per_second",
        "changed": True,
    }
    assert (document["before"], document["after"]) == (None, 5)
    assert [one["destination"] for one in document["switches"]] == ["*", "orders"]
    listed = json.loads(run_cli("switches", "--json").stdout)["switches"]
    assert (
        listed == document["switches"] == json.loads(run_cli("status", "--json").stdout)["switches"]
    )


def test_what_is_set_is_shown_to_people(
    database_url: str, kafka: KafkaBroker, run_cli: RunCliFunction
) -> None:
    assert run_cli("switches").stdout == "No switch is set.\n"
    assert "switched" not in run_cli("status").stdout
    run_cli("pause", "--reason", "incident 7", "--by", "ann")
    run_cli("limit", "orders", "--rows-per-second", "5", *WHY)
    shown = run_cli("switches").stdout
    for text in (shown, run_cli("status").stdout):
        assert shown in text
        (line,) = (line for line in text.splitlines() if line.startswith("(all)") and "ann" in line)
        assert line.split()[:4] == ["(all)", "paused", "yes", "yes"]
        assert line.endswith("incident 7")
    health = run_cli("health", "--timeout", "60")
    assert "all destinations are paused by ann since" in health.stdout
    assert "incident 7" in health.stdout
    run_cli("resume", *WHY)
    assert "all destinations are paused" not in run_cli("health", "--timeout", "60").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("pause",), "--reason"),
        (("pause", "--reason", "  "), "the reason is blank"),
        (("pause", "x" * 201, *WHY), "201 characters"),
        (("pause", *WHY, "--by", " "), "--by is blank"),
        (("limit", "orders", *WHY), "give either --rows-per-second or --off"),
        (("limit", "--rows-per-second", "5", "--off", *WHY), "give either"),
        (("limit", "--rows-per-second", "0", *WHY), "rows_per_second is 0"),
        (("batch", "--rows", "-1", *WHY), "rows is -1"),
        (("quiet", *WHY), "give either --window or --off"),
        (("quiet", "--window", "at night", *WHY), "no daily window"),
        (("quiet", "--window", "23:00-06:00 Mars", *WHY), "no time zone 'Mars'"),
    ],
)
def test_wrong_use_ends_with_2_and_sets_nothing(
    database_url: str, run_cli: RunCliFunction, arguments: tuple[str, ...], message: str
) -> None:
    done = run_cli(*arguments, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert message in done.stderr
    assert audit(database_url) == []
