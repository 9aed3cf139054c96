"""Which Kafka to run: the real one, or the mock cluster where Java or Maven is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from bridge.errors import LocalError
from bridge.local.kafka import LocalKafka
from bridge.local.kafka_jars import kafka_version, missing_programs
from bridge.local.mock import MockKafka

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

BrokerKind = Literal["auto", "real", "mock"]


def real_is_chosen(kind: BrokerKind) -> bool:
    """Whether this kind means the real Kafka here; raises LocalError for `real` without Java."""
    if kind == "mock":
        return False
    missing = missing_programs()
    if missing and kind == "real":
        raise LocalError(missing)
    return not missing


def describe_choice(kind: BrokerKind) -> str:
    """Return which broker this kind means on this machine, and why where it is a stand-in."""
    if real_is_chosen(kind):
        return f"Apache Kafka {kafka_version()}"
    return "librdkafka mock" + (f" ({missing_programs()})" if kind == "auto" else "")


def choose_broker(
    kind: BrokerKind,
    *,
    data: Path | None = None,
    brokers: int = 1,
    settings: Mapping[str, str] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> LocalKafka | MockKafka:
    """Return the broker to start; says through `progress` where it is only the mock cluster."""
    if real_is_chosen(kind):
        return LocalKafka(data=data, brokers=brokers, settings=settings, progress=progress)
    if kind == "auto":
        progress(f"using librdkafka's mock cluster instead of Kafka: {missing_programs()}")
    else:
        progress("using librdkafka's mock cluster instead of Kafka, as asked")
    return MockKafka(brokers=brokers)
