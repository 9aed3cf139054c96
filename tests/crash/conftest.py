"""Three Kafka nodes behind proxies and a PostgreSQL of their own, for tests that break them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bridge.local.broker import describe_choice
from tests.crash.chaos.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def stage(
    tmp_path_factory: pytest.TempPathFactory,
    uses_real_kafka: bool,  # noqa: FBT001 - a fixture's name
) -> Iterator[Stage]:
    """Started once for a module; each test leaves every server running."""
    if not uses_real_kafka:
        pytest.skip(f"needs a real Kafka and this run has the {describe_choice('auto')}")
    with Stage(tmp_path_factory.mktemp("stage")) as running:
        yield running
