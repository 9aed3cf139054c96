"""How a consumer consumes: what the user said, checked, and what aiokafka is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bridge.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

_OURS = {
    "auto_offset_reset": "the offsets reset to the earliest record, or messages would be lost",
    "bootstrap_servers": "say it as a parameter of Consumer",
    "client_id": "say it as a parameter of Consumer",
    "enable_auto_commit": "offsets are committed after the work is done",
    "group_id": "say group=… of Consumer",
    "group_instance_id": "say static_member=… of Consumer",
    "key_deserializer": "records are read by the consumer itself",
    "max_poll_interval_ms": "say max_poll_interval=… of Consumer",
    "max_poll_records": "say max_records=… of Consumer",
    "rebalance_timeout_ms": "it follows from drain_timeout=…",
    "value_deserializer": "records are read by the consumer itself",
}
# Commit and leave-taking have to fit in behind the drain.
_AFTER_DRAIN = 20.0


@dataclass(frozen=True, kw_only=True)
class Options:
    """Checked options of one consumer; times are seconds. See `Consumer` for what they mean."""

    topics: tuple[str, ...]
    group: str
    bootstrap_servers: str
    client_id: str
    static_member: str | None
    concurrency: int
    max_records: int
    max_bytes: int
    commit_interval: float
    drain_timeout: float
    max_poll_interval: float
    kafka: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.topics or not all(self.topics):
            raise ConfigurationError("a consumer needs at least one topic: Consumer('orders', …)")
        if not self.group:
            raise ConfigurationError(
                "a consumer needs a group: Consumer('orders', group='billing')"
            )
        for name in ("concurrency", "max_records", "max_bytes"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("commit_interval", "max_poll_interval"):
            if getattr(self, name) <= 0:
                raise ConfigurationError(f"{name} must be more than 0, not {getattr(self, name)}")
        if self.drain_timeout < 0:
            raise ConfigurationError(f"drain_timeout must not be negative: {self.drain_timeout}")
        for name in self.kafka:
            if name in _OURS:
                raise ConfigurationError(
                    f"kafka option {name} is not for you to set: {_OURS[name]}"
                )

    def client_options(self) -> dict[str, Any]:
        """Return what every aiokafka client is told: servers and security."""
        given = {name: value for name, value in self.kafka.items() if name in _OF_EVERY_CLIENT}
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "client_id": self.client_id,
            **given,
        }

    def consumer_options(self) -> dict[str, Any]:
        """Return what aiokafka's consumer is told."""
        return {
            "isolation_level": "read_committed",
            # aiokafka's own 100 ms are ten lines of log a second while no broker answers.
            "retry_backoff_ms": 250,
            **self.kafka,
            **self.client_options(),
            "group_id": self.group,
            "group_instance_id": self.static_member,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "max_poll_interval_ms": int(self.max_poll_interval * 1000),
            "rebalance_timeout_ms": int((self.drain_timeout + _AFTER_DRAIN) * 1000),
        }


_OF_EVERY_CLIENT = frozenset(
    {
        "metadata_max_age_ms",
        "request_timeout_ms",
        "retry_backoff_ms",
        "security_protocol",
        "ssl_context",
        "connections_max_idle_ms",
        "sasl_mechanism",
        "sasl_plain_username",
        "sasl_plain_password",
        "sasl_kerberos_service_name",
        "sasl_kerberos_domain_name",
        "sasl_oauth_token_provider",
    }
)
