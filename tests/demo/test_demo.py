"""The demo as a real process: it adds up, it names what does not, and it leaves nothing behind."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import psycopg
import pytest

from tests.fixtures.postgres import chosen_servers
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from tests.fixtures.cli import CliProcess, RunCliFunction, StartCliFunction
    from tests.fixtures.kafka import KafkaBroker
    from tests.fixtures.postgres import PostgresServer

_FEW = ("demo", "--messages", "400")
_SECONDS = 240.0
_OWN_DATABASE = "outbox_bridge_demo_%"


# Each starts servers and processes of its own.
pytestmark = pytest.mark.timeout(400)

# The demo says nothing about versions of PostgreSQL; one of them will do.
one_server = pytest.mark.parametrize(
    "postgres", chosen_servers()[:1], indirect=True, ids=lambda one: f"pg-{one.name}"
)


@pytest.fixture
def given_servers(postgres: PostgresServer, kafka: KafkaBroker) -> dict[str, str]:
    """Settings that make the demo use the tests' servers instead of starting its own."""
    return {
        "OUTBOX_BRIDGE_LOCAL_DATABASE_URL": postgres.url,
        "OUTBOX_BRIDGE_LOCAL_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
    }


def demo_databases(postgres: PostgresServer) -> list[str]:
    with psycopg.connect(postgres.url, autocommit=True) as conn:
        rows = conn.execute(
            "select datname from pg_database where datname like %s", [_OWN_DATABASE]
        )
        return [name for (name,) in rows]


def demo_topics(kafka: KafkaBroker) -> list[str]:
    return [name for name in kafka.admin.list_topics(timeout=30).topics if "demo-" in name]


def assert_adds_up(result: dict[str, Any], messages: int) -> None:
    assert result["ok"] is True
    assert all(check["ok"] for check in result["checks"])
    assert result["enqueued"] == result["order_events"] == messages
    assert result["sent"] == result["received_distinct"] == messages
    assert result["received"] == messages + result["duplicates"]
    assert result["rolled_back"] > 0
    assert result["absorbed"] == result["enqueued_twice"] > 0
    assert result["lost"] == result["inversions"] == 0
    assert result["kills"] >= 1
    assert result["rescued"] == result["in_flight_at_kill"] > 0
    assert result["latency_p99_ms"] >= result["latency_p50_ms"] > 0


def test_the_demo_adds_up_on_parts_of_its_own_twice_side_by_side(
    start_cli: StartCliFunction,
) -> None:
    """One on the Kafka that the tests are told to use, one on the mock cluster."""
    both = [
        start_cli(*_FEW, "--json"),
        start_cli(*_FEW, "--json", env={"OUTBOX_BRIDGE_LOCAL_KAFKA": "mock"}),
    ]
    for process in both:
        assert process.wait(_SECONDS) == 0, process.stderr
    chosen, mock = (json.loads(process.stdout) for process in both)
    assert_adds_up(chosen, 400)
    assert_adds_up(mock, 400)
    assert mock["broker"] == "librdkafka mock"
    assert mock["is_real_kafka"] is False
    if chosen["is_real_kafka"]:
        assert chosen["broker"].startswith("Apache Kafka ")
    assert all(f"{act}/5 " in both[0].stderr for act in range(1, 6))
    assert "killed with SIGKILL while " in both[0].stderr


@one_server
def test_the_demo_uses_given_servers_and_leaves_them_as_they_were(
    run_cli: RunCliFunction,
    given_servers: dict[str, str],
    postgres: PostgresServer,
    kafka: KafkaBroker,
) -> None:
    # What leads other commands somewhere else must lead neither the demo nor its children there.
    elsewhere = {
        "OUTBOX_BRIDGE_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/nothing",
        "OUTBOX_BRIDGE_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "PGHOST": "127.0.0.1",
        "PGPORT": "1",
    }
    done = run_cli(*_FEW, env=given_servers | elsewhere, timeout=_SECONDS)
    first, *rest = done.stdout.splitlines()
    assert first.split() == ["broker", "Kafka", "at", kafka.bootstrap_servers]
    names = [line[:18].strip() for line in [first, *rest]]
    assert names[2:11] == [
        "business rows",
        "enqueued",
        "rolled back",
        "absorbed",
        "SENT",
        "received",
        "duplicates",
        "lost",
        "order inversions",
    ]
    assert "\nNothing was lost, and every number adds up.\n" in done.stderr
    assert "outbox-bridge demo --console" in done.stderr.splitlines()[-1]
    assert demo_databases(postgres) == []
    if kafka.is_real:
        wait_until(lambda: demo_topics(kafka) == [], "the demo's topics are removed")


@one_server
def test_a_business_row_that_vanishes_fails_the_demo_and_the_wrong_sum_is_named(
    start_cli: StartCliFunction, given_servers: dict[str, str], postgres: PostgresServer
) -> None:
    process = start_cli(*_FEW, "--json", env=given_servers)
    wait_until(lambda: "4/5 " in process.stderr, "the backlog was sent", _SECONDS)
    (name,) = demo_databases(postgres)
    with psycopg.connect(postgres.database_url(name), autocommit=True) as conn:
        deleted = conn.execute(
            "delete from shop_order where order_id = "
            "(select min(order_id) from shop_order where status = 'shipped')"
        )
        assert deleted.rowcount == 1
    assert process.wait(_SECONDS) == 1
    result = json.loads(process.stdout)
    wrong = [check["name"] for check in result["checks"] if not check["ok"]]
    assert result["ok"] is False
    assert wrong == ["enqueued"]
    assert "WRONG: the business rows imply as many messages as were enqueued (396 ≠ 400)" in (
        process.stderr
    )


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -signal.SIGKILL)],
    ids=["ctrl-c", "terminated", "killed"],
)
def test_an_interrupted_demo_leaves_no_process_behind(
    start_cli: StartCliFunction, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    process = start_cli(*_FEW, env={"OUTBOX_BRIDGE_LOCAL_KAFKA": "mock", "TMPDIR": str(temporary)})
    wait_until(lambda: "4/5 " in process.stderr, "everything runs", _SECONDS)
    family = psutil.Process(process.pid).children(recursive=True)
    assert any("relay" in words(one) for one in family)
    process.send(number)
    assert process.wait(_SECONDS) == code
    wait_until(lambda: not any(map(runs, family)), "every process has ended")
    if number is not signal.SIGKILL:
        assert list(temporary.iterdir()) == []


def words(process: psutil.Process) -> list[str]:
    """Return the command line; of a process that was killed just now there is none."""
    try:
        return list(process.cmdline())
    except psutil.NoSuchProcess:
        return []


def runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_keep_leaves_data_and_logs_and_says_where(
    start_cli: StartCliFunction, run_cli: RunCliFunction
) -> None:
    mock = {"OUTBOX_BRIDGE_LOCAL_KAFKA": "mock"}
    process = start_cli(*_FEW, "--keep", "--json", env=mock)
    assert process.wait(_SECONDS) == 0, process.stderr
    kept = kept_folder(process)
    try:
        assert (kept / "relay-1.log").stat().st_size > 0
        run_cli("local", "up", "--detach", "--data", str(kept), env=mock)
        url = json.loads(run_cli("local", "env", "--data", str(kept), "--json").stdout)
        status = run_cli("status", "--json", env=url)
        assert json.loads(status.stdout)["counts"]["SENT"] == 400
    finally:
        run_cli("local", "down", "--data", str(kept), check=False)
        shutil.rmtree(kept)


def kept_folder(process: CliProcess) -> Path:
    kept = Path(json.loads(process.stdout)["kept"])
    assert f"data and logs are in {kept}" in process.stderr
    return kept


def test_too_few_messages_are_a_usage_error(run_cli: RunCliFunction) -> None:
    assert run_cli("demo", "--messages", "5", check=False).returncode == 2
