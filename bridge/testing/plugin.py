"""The pytest plugin `outbox_bridge`: fixtures for tests of applications that enqueue.

A project configures it by overriding fixtures in its conftest.py (`outbox_connection`,
`outbox_database_url`, `outbox_schema`, `outbox_kafka`, `outbox_relay_settings`) or by the ini
options of the second, third and fourth. Loading it loads pytest and nothing else.

No fixture reads OUTBOX_BRIDGE_* or PG* variables: a relay that sends to a mock what it finds in the
database that the shell happens to name would lose those messages for good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.local.mock import MockKafka
    from bridge.testing.outbox import Outbox
    from bridge.testing.relay import OutboxRelay

_DATABASE, _SCHEMA, _KAFKA = "outbox_database_url", "outbox_schema", "outbox_kafka"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the ini options."""
    parser.addini(_DATABASE, "URL of the database under test, with a migrated outbox", default="")
    parser.addini(_SCHEMA, "schema of the outbox", default="public")
    parser.addini(_KAFKA, "bootstrap servers for outbox_relay; default: kafka_mock", default="")


@pytest.fixture
def outbox_database_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of the database under test; override it or set the ini option of this name."""
    url: str = request.config.getini(_DATABASE)
    if not url:
        raise pytest.UsageError(
            "no database for the outbox: set outbox_database_url in pytest's ini file, or override "
            "the fixture outbox_database_url (or outbox_connection) in conftest.py"
        )
    return url


@pytest.fixture
def outbox_schema(request: pytest.FixtureRequest) -> str:
    """Return the schema of the outbox; override it or set the ini option of this name."""
    schema: str = request.config.getini(_SCHEMA)
    return schema


@pytest.fixture
def outbox_connection() -> Any:
    """Give the connection through which `outbox` reads; override it with the test's own.

    One of psycopg, SQLAlchemy (a Session too) or Django. None: a connection of its own to
    `outbox_database_url`, which sees what is committed.
    """
    return None


@pytest.fixture
def outbox(
    request: pytest.FixtureRequest, outbox_connection: Any, outbox_schema: str
) -> Iterator[Outbox]:
    """Tell what the test has enqueued: `outbox.assert_enqueued("order.created", key="order-1")`."""
    from bridge.testing.outbox import Outbox  # noqa: PLC0415 - nothing before it is used

    if outbox_connection is not None:
        yield Outbox(outbox_connection, schema=outbox_schema)
        return
    import psycopg  # noqa: PLC0415 - likewise

    url: str = request.getfixturevalue("outbox_database_url")
    with psycopg.connect(url, autocommit=True) as conn:
        yield Outbox(conn, schema=outbox_schema, is_separate=True)


@pytest.fixture
def kafka_mock() -> Iterator[MockKafka]:
    """Run librdkafka's mock cluster: Kafka's protocol in this process, without any topic yet.

    `kafka_mock.bootstrap_servers` is its address. Topics come into being on first use, with 4
    partitions.
    """
    from bridge.local.mock import MockKafka  # noqa: PLC0415 - nothing before it is used

    with MockKafka() as running:
        yield running


@pytest.fixture
def outbox_kafka(request: pytest.FixtureRequest) -> str:
    """Return the brokers for `outbox_relay`: the ini option of this name, else `kafka_mock`'s."""
    servers: str = request.config.getini(_KAFKA)
    if servers:
        return servers
    mock: MockKafka = request.getfixturevalue("kafka_mock")
    return mock.bootstrap_servers


@pytest.fixture
def outbox_relay_settings() -> dict[str, Any]:
    """Return further settings of the relay by section, such as its routes; override it."""
    return {}


@pytest.fixture
def outbox_relay(
    outbox_database_url: str,
    outbox_kafka: str,
    outbox_schema: str,
    outbox_relay_settings: dict[str, Any],
) -> OutboxRelay:
    """Send what is committed: `outbox_relay.drain()`, then `outbox_relay.records(topic)`.

    It takes every row of that database, so the database must be the tests' own.
    """
    from bridge.testing.relay import OutboxRelay  # noqa: PLC0415 - nothing before it is used

    return OutboxRelay(
        outbox_database_url, outbox_kafka, schema=outbox_schema, settings=outbox_relay_settings
    )
