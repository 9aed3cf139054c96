"""Servers for tests that break them: three Kafka nodes and a PostgreSQL, or a single broker."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest

from bridge.local.broker import describe_choice
from bridge.local.kafka import LocalKafka
from tests.crash.chaos.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.relays import RelayProcess, StartRelayFunction


_PATIENT = {
    "relay_heartbeat_interval": 1,
    "relay_lease": 10,
    "relay_lease_margin": 2,
    "kafka_message_timeout_ms": 5000,
}
"""A cold broker beside other tests takes seconds for a record that `make chaos` would give up.

What a relay gives up and sends again is a fault of its own, and no round may have two.
"""


@pytest.fixture(scope="module")
def stage(
    tmp_path_factory: pytest.TempPathFactory,
    uses_real_kafka: bool,  # noqa: FBT001 - a fixture's name
) -> Iterator[Stage]:
    """Started once for a module; each test leaves every server running."""
    if not uses_real_kafka:
        pytest.skip(f"needs a real Kafka and this run has the {describe_choice('auto')}")
    with Stage(tmp_path_factory.mktemp("stage"), _PATIENT) as running:
        yield running


@pytest.fixture(scope="module")
def broker(uses_real_kafka: bool) -> Iterator[LocalKafka]:  # noqa: FBT001 - a fixture's name
    """A broker that the tests of a module freeze, stop and kill; each leaves it running."""
    if not uses_real_kafka:
        pytest.skip("needs a real Kafka that can be suspended")
    with LocalKafka(heap="256m") as local:
        yield local


@pytest.fixture
def topic() -> str:
    """A topic for this test alone; the broker creates it on first use."""
    return f"orders-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def start(broker: LocalKafka, start_relay: StartRelayFunction) -> StartRelayFunction:
    """Start relays that use this module's broker."""
    place = {"OUTBOX_BRIDGE_KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers}

    def started(*args: str, wait: bool = True, **settings: Any) -> RelayProcess:
        return start_relay(*args, wait=wait, env=place, **settings)

    return started
