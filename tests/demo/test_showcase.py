"""`demo --console`: traffic, failures on purpose and a console, until somebody ends it."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

import psycopg

from tests.demo.test_demo import demo_databases, demo_topics, given_servers, one_server
from tests.fixtures.relays import PATIENCE
from tests.fixtures.scraping import get
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from tests.fixtures.cli import StartCliFunction
    from tests.fixtures.kafka import KafkaBroker
    from tests.fixtures.postgres import PostgresServer

__all__ = ["given_servers"]


@one_server
def test_the_console_shows_traffic_and_failures_until_it_is_ended(
    given_servers: dict[str, str],
    start_cli: StartCliFunction,
    postgres: PostgresServer,
    kafka: KafkaBroker,
) -> None:
    demo = start_cli("demo", "--console", env=given_servers)

    def url() -> str | None:
        assert demo.running, demo.stderr
        match = re.search(r"the console is on (http://\S+)", demo.stderr)
        return match[1] if match else None

    address = wait_until(url, "the console is up", PATIENCE)

    def page(path: str) -> str:
        return get(f"{address}{path}").text

    wait_until(lambda: "MESSAGE_TOO_LARGE" in page("failures"), "a document failed", PATIENCE)
    wait_until(lambda: "Acknowledged by Kafka" in page("find?q=order-1-created"), "SENT", PATIENCE)
    wait_until(lambda: "relay-2" in page("relays"), "both relays are there", PATIENCE)
    demo.send(signal.SIGINT)
    assert demo.wait(PATIENCE) == 0
    assert "Traceback" not in demo.stderr
    assert demo_databases(postgres) == []
    wait_until(lambda: not demo_topics(kafka) or not kafka.is_real, "the topics are gone")
    # A server process ends a moment after its client.
    with psycopg.connect(postgres.url, autocommit=True) as conn:
        left = "select from pg_stat_activity where application_name like '%demo%'"
        wait_until(lambda: not conn.execute(left).fetchall(), "no session is left", PATIENCE)
