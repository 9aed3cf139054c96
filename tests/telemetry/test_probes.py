"""Probes of relays that start, run, freeze, stop and lose what they need."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge.database.migrations import Migrator
from bridge.relay.claimer import Run
from bridge.relay.publisher import Publisher
from bridge.relay.supervisor import Relay
from bridge.settings import load_settings
from tests.fixtures.postgres import on_one_server
from tests.fixtures.relays import PATIENCE
from tests.fixtures.scraping import address, get, scrape
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.local.postgres import LocalPostgres
    from tests.fixtures.cli import RunCliFunction
    from tests.fixtures.kafka import KafkaBroker, NewTopicFunction
    from tests.fixtures.relays import Outbox, StartRelayFunction


FROZEN_AFTER = 4.0


def statuses(url: str) -> dict[str, int]:
    return {page: get(f"{url}/{page}").status for page in ("livez", "readyz", "startupz")}


@on_one_server
def test_a_running_relay_says_yes_and_a_stopping_one_is_not_ready(
    outbox: Outbox, start_relay: StartRelayFunction, new_topic: NewTopicFunction
) -> None:
    # Outcomes that are not written keep the drain waiting.
    relay = start_relay(http_port=0, relay_settle_interval=3600)
    url = address(relay)
    well = {"livez": 200, "readyz": 200, "startupz": 200}
    wait_until(lambda: statuses(url) == well, "it says yes", PATIENCE)
    outbox.add(5, new_topic())
    wait_until(lambda: outbox.counts().get("PROCESSING"), "rows are in flight", PATIENCE)
    relay.process.send(signal.SIGTERM)
    wait_until(lambda: get(f"{url}/readyz").status == 503, "it is not ready", PATIENCE)
    assert get(f"{url}/readyz").text == "stopping\n"
    assert statuses(url) == {"livez": 200, "readyz": 503, "startupz": 200}
    assert scrape(relay).value("outbox_bridge_relay_ready") == 0
    relay.process.send(signal.SIGTERM)
    relay.process.wait(PATIENCE)
    with pytest.raises(OSError, match=r"refused|reset"):
        get(f"{url}/livez")


@on_one_server
def test_a_relay_that_waits_for_kafka_lives_and_has_not_started(
    database_url: str, start_relay: StartRelayFunction, run_cli: RunCliFunction
) -> None:
    relay = start_relay(wait=False, http_port=0, kafka_bootstrap_servers="127.0.0.1:1")
    url = address(relay)
    relay.wait_for_event("waiting for Kafka")
    assert statuses(url) == {"livez": 200, "readyz": 503, "startupz": 503}
    assert "not registered yet" in get(f"{url}/startupz").text
    assert scrape(relay).value("outbox_bridge_relay_ready") == 0
    assert run_cli("health", "live", "--url", url).stdout == "ok\n"
    done = run_cli("health", "started", "--url", url, check=False)
    assert done.returncode == 1
    assert "not registered yet" in done.stdout


def stays_alive(url: str) -> None:
    """See `/livez` say yes for longer than a frozen thread is given."""
    end = time.monotonic() + 2 * FROZEN_AFTER
    while time.monotonic() < end:
        page = get(f"{url}/livez")
        assert page.status == 200, page.text
        time.sleep(0.1)


@on_one_server
def test_a_database_that_hangs_or_is_away_makes_no_relay_dead(
    own_postgres: LocalPostgres, start_relay: StartRelayFunction, kafka: KafkaBroker
) -> None:
    with psycopg.connect(own_postgres.url, autocommit=True) as connection:
        Migrator(connection).up()
    relay = start_relay(
        env={"OUTBOX_BRIDGE_DATABASE_URL": own_postgres.url},
        http_port=0,
        http_frozen_after=FROZEN_AFTER,
    )
    url = address(relay)
    own_postgres.suspend()
    stays_alive(url)
    own_postgres.resume()
    wait_until(lambda: get(f"{url}/readyz").status == 200, "it is ready", PATIENCE)
    own_postgres.stop("immediate")
    wait_until(lambda: get(f"{url}/readyz").status == 503, "it is not ready", PATIENCE)
    assert "database lost" in get(f"{url}/readyz").text
    assert scrape(relay).value("outbox_bridge_relay_database_lost") == 1
    stays_alive(url)
    own_postgres.start()
    wait_until(lambda: get(f"{url}/readyz").status == 200, "it is ready again", PATIENCE)
    assert scrape(relay).value("outbox_bridge_relay_database_lost") == 0


@contextmanager
def running(relay: Relay) -> Iterator[str]:
    """Run a relay in this process, so that a thread of it can be frozen; yields its address."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            relay.run()
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    exposure = relay._exposure
    assert exposure is not None
    try:
        wait_until(lambda: exposure._endpoint.port or failures, "the port is open", PATIENCE)
        yield f"http://127.0.0.1:{exposure._endpoint.port}"
    finally:
        relay.stop()
        thread.join(PATIENCE)
    assert failures == []
    assert not thread.is_alive()


@on_one_server
def test_a_frozen_thread_is_named_by_livez_and_nothing_else_is(
    outbox: Outbox,
    kafka: KafkaBroker,
    new_topic: NewTopicFunction,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = new_topic()
    frozen, go_on = threading.Event(), threading.Event()
    publish = Publisher._publish

    def freeze(self: Publisher, *args: Any) -> None:
        frozen.set()
        go_on.wait(PATIENCE)
        publish(self, *args)

    monkeypatch.setattr(Publisher, "_publish", freeze)
    overrides: dict[str, dict[str, Any]] = {
        "database": {"url": outbox.url},
        "kafka": {"bootstrap_servers": kafka.bootstrap_servers},
        "http": {"port": 0, "frozen_after": 1},
    }
    with running(Relay(load_settings(None, overrides), Run())) as url:
        wait_until(lambda: get(f"{url}/readyz").status == 200, "it is ready", PATIENCE)
        ids = outbox.add(1, topic)
        assert frozen.wait(PATIENCE)

        def is_named_alone() -> bool:
            page = get(f"{url}/livez")
            said = [line.partition(" for ")[0] for line in page.text.splitlines()]
            return page.status == 503 and said == ["thread publish has given no sign of life"]

        # On a busy machine another thread may be late, too, but not for long.
        wait_until(is_named_alone, "livez names the frozen thread alone", PATIENCE)
        assert get(f"{url}/readyz").status == 200
        go_on.set()
        outbox.wait_for("SENT", ids)
        wait_until(lambda: get(f"{url}/livez").status == 200, "livez is well", PATIENCE)


@on_one_server
def test_a_port_that_is_taken_is_named(
    outbox: Outbox, start_relay: StartRelayFunction, kafka: KafkaBroker
) -> None:
    port = address(start_relay(http_port=0)).rpartition(":")[2]
    second = start_relay(wait=False, http_port=port)
    assert second.process.wait(PATIENCE) == 1
    assert f"http.port = {port} cannot be listened on: Address already in use" in (
        second.process.stderr
    )
