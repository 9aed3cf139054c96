from __future__ import annotations

import json
from typing import TYPE_CHECKING

import psycopg

from bridge.database.template import advisory_class

if TYPE_CHECKING:
    from subprocess import CompletedProcess

    from tests.fixtures.cli import RunCliFunction
    from tests.fixtures.kafka import KafkaBroker


def states(done: CompletedProcess[str]) -> dict[str, str]:
    document = json.loads(done.stdout)
    assert document["healthy"] is (done.returncode == 0)
    return {check["name"]: check["state"] for check in document["checks"]}


def test_all_parts_reachable_is_healthy(
    database_url: str, kafka: KafkaBroker, run_cli: RunCliFunction
) -> None:
    done = run_cli("health", "--json", "--timeout", "60")
    assert states(done) == {
        "database": "ok",
        "schema": "ok",
        "relays": "warning",
        "switches": "ok",
        "kafka": "ok",
    }
    assert done.stderr == ""
    assert run_cli("health", "--require-relay", check=False).returncode == 1
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute(
            "insert into app_outbox_relay (relay_name, host, pid, version, lease_seconds) "
            "values ('relay-1', 'h', 1, '1', 120)"
        )
        conn.execute(
            "select pg_advisory_lock(%s, relay_id) from app_outbox_relay",
            [advisory_class("relay", "public")],
        )
        done = run_cli("health", "--json", "--require-relay", "--timeout", "60")
        assert states(done)["relays"] == "ok"
        conn.execute(
            "insert into app_outbox "
            "(message_key, event_type, destination, created_at, next_run_at) "
            "values ('k', 't', 'd', now() - interval '1 hour', now() - interval '1 hour')"
        )
    done = run_cli("health", "--json", "--max-wait", "7200", "--timeout", "60")
    assert states(done)["wait"] == "ok"
    done = run_cli("health", "--json", "--max-wait", "60", check=False)
    assert states(done)["wait"] == "failed"


def test_each_missing_part_is_named(
    empty_database_url: str, kafka: KafkaBroker, run_cli: RunCliFunction
) -> None:
    done = run_cli("health", "--json", "--timeout", "60", check=False)
    assert done.returncode == 1
    assert states(done) == {
        "database": "ok",
        "schema": "failed",
        "relays": "skipped",
        "switches": "skipped",
        "kafka": "ok",
    }
    nobody = {"OUTBOX_BRIDGE_DATABASE_URL": "postgresql://localhost:1/none"}
    done = run_cli("health", "--json", env=nobody, check=False)
    assert states(done)["database"] == "failed"


def test_unreachable_kafka_is_named_within_the_time_limit(
    database_url: str, run_cli: RunCliFunction
) -> None:
    for servers, reason in (("localhost:1", "does not answer"), ("", "BOOTSTRAP_SERVERS")):
        broker = {"OUTBOX_BRIDGE_KAFKA_BOOTSTRAP_SERVERS": servers}
        done = run_cli("health", "--timeout", "1", env=broker, check=False)
        assert done.returncode == 1
        assert reason in done.stdout
        assert done.stderr == ""


def test_unknown_kafka_property_is_named(database_url: str, run_cli: RunCliFunction) -> None:
    broken = {
        "OUTBOX_BRIDGE_KAFKA_BOOTSTRAP_SERVERS": "localhost:1",
        "OUTBOX_BRIDGE_KAFKA_LINGER_MSX": "1",
    }
    done = run_cli("health", "--timeout", "1", env=broken, check=False)
    assert done.returncode == 1
    assert "linger.msx" in done.stdout


def test_a_probe_of_a_relay_that_does_not_answer_says_so(run_cli: RunCliFunction) -> None:
    done = run_cli("health", "live", "--url", "http://127.0.0.1:1", "--json", check=False)
    assert done.returncode == 1
    (answer,) = json.loads(done.stdout)["answer"]
    assert "http://127.0.0.1:1 does not answer" in answer


def test_a_probe_needs_an_address_and_an_address_a_probe(run_cli: RunCliFunction) -> None:
    for arguments, message in (
        (["live"], "OUTBOX_BRIDGE_HTTP_PORT"),
        (["ready", "--url", "https://127.0.0.1:1"], "no address of a relay's port"),
        (["ready", "--url", "http://127.0.0.1:port"], "no address of a relay's port"),
        (["--url", "http://127.0.0.1:1"], "--url goes with"),
        (["dead"], "'dead' is not one of"),
    ):
        done = run_cli("health", *arguments, check=False)
        assert done.returncode == 2
        assert message in done.stderr


def test_a_probe_finds_the_relay_beside_it_by_its_settings(run_cli: RunCliFunction) -> None:
    for host, shown in (
        ("0.0.0.0", "http://127.0.0.1:1"),  # noqa: S104 - what a relay in a container has
        ("::", "http://[::1]:1"),
        ("127.0.0.1", "http://127.0.0.1:1"),
    ):
        env = {"OUTBOX_BRIDGE_HTTP_HOST": host, "OUTBOX_BRIDGE_HTTP_PORT": "1"}
        done = run_cli("health", "ready", env=env, check=False)
        assert done.returncode == 1
        assert f"{shown} does not answer" in done.stdout
