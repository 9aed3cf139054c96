"""A relay checks the schema before it claims anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fixtures.postgres import on_one_server

if TYPE_CHECKING:
    from tests.fixtures.cli import RunCliFunction
    from tests.fixtures.kafka import KafkaBroker
    from tests.fixtures.relays import Outbox


def test_a_relay_refuses_a_schema_whose_trigger_is_switched_off(
    outbox: Outbox, kafka: KafkaBroker, run_cli: RunCliFunction
) -> None:
    """Rows would get no queue entry and wait without a word."""
    outbox.execute("alter table app_outbox disable trigger app_outbox_after_insert")
    refused = run_cli("relay", "--once", check=False)
    assert refused.returncode == 3
    assert "app_outbox_after_insert" in refused.stderr
    outbox.execute("alter table app_outbox enable trigger app_outbox_after_insert")
    assert run_cli("relay", "--once").returncode == 0


@on_one_server
def test_a_relay_refuses_a_database_without_an_encoding(
    outbox: Outbox, kafka: KafkaBroker, run_cli: RunCliFunction
) -> None:
    outbox.execute("create database ascii_only template template0 encoding 'SQL_ASCII' locale 'C'")
    try:
        url = outbox.url.rsplit("/", 1)[0] + "/ascii_only"
        run_cli("migrate", "up", "--database-url", url)
        refused = run_cli("relay", "--once", "--database-url", url, check=False)
        assert refused.returncode == 3
        assert "SQL_ASCII" in refused.stderr
    finally:
        outbox.execute("drop database ascii_only with (force)")
