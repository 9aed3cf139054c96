"""librdkafka properties: second names, values that break a promise, secret ones (pure)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Property = str | int | float | bool
"""A value as TOML or the environment gives it; librdkafka reads its text."""

DEFAULT_MESSAGE_TIMEOUT_MS = 90_000
"""The relay's `message.timeout.ms` where `[kafka]` says nothing else."""

ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "request.required.acks": "acks",
        "delivery.timeout.ms": "message.timeout.ms",
        "max.in.flight": "max.in.flight.requests.per.connection",
        "message.send.max.retries": "retries",
        "queue.buffering.max.ms": "linger.ms",
        "compression.type": "compression.codec",
    }
)
"""Second names that librdkafka knows for a property."""

UNDOTTED: frozenset[str] = frozenset({"acks", "debug", "log_level", "partitioner", "retries"})
"""Properties whose name has no dot: any other name without one is a misspelt setting."""

_SECRET = re.compile(r"password|passphrase|secret|key\.pem$|oauthbearer\.config$")
_TRUE = frozenset({"true", "t", "1"})


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a property's value is refused; `forcible` ones may be named in `kafka.allow_unsafe`."""

    name: str
    reason: str
    fix: str
    forcible: bool


@dataclass(frozen=True, slots=True)
class _Rule:
    """`breaks` looks at the value's lower-case text."""

    breaks: Callable[[str], bool]
    reason: str
    fix: str
    forcible: bool = True


def canonical(name: str) -> str:
    """Return the one name under which a property and its aliases are compared."""
    return ALIASES.get(name, name)


def is_secret(name: str) -> bool:
    """Tell whether the value of property `name` must never be shown."""
    return _SECRET.search(name) is not None


def property_text(value: Property) -> str:
    """Write the value as librdkafka reads it: `True` is `true`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_true(text: str) -> bool:
    return text in _TRUE


def _is_false(text: str) -> bool:
    return not _is_true(text)


def _above(limit: int) -> Callable[[str], bool]:
    def breaks(text: str) -> bool:
        try:
            return int(text) > limit
        except ValueError:
            return False  # librdkafka names the malformed number itself

    return breaks


def _is_zero(text: str) -> bool:
    return text.strip() == "0"


def _always(_text: str) -> bool:
    return True


_RULES: Mapping[str, _Rule] = MappingProxyType(
    {
        "enable.idempotence": _Rule(
            _is_false,
            "without idempotence the producer's own retries send records twice and out of order",
            "remove it (the relay sets true)",
        ),
        "acks": _Rule(
            lambda text: text not in {"all", "-1"},
            "a row is SENT once all in-sync replicas have the record; fewer can lose it after that",
            "remove it (the relay sets all)",
        ),
        "max.in.flight.requests.per.connection": _Rule(
            _above(5),
            "brokers tell repeated records apart for the last five requests only",
            "use 5 or less",
        ),
        "partitioner": _Rule(
            lambda text: text not in {"murmur2_random", "murmur2"},
            "a key would go to another partition than Java's and aiokafka's producers choose",
            'use "murmur2_random"',
        ),
        "retries": _Rule(
            _is_zero,
            "every hiccup of a broker would cost the message an attempt",
            "remove it (librdkafka retries until message.timeout.ms)",
        ),
        "queuing.strategy": _Rule(
            lambda text: text != "fifo",
            "the newest record would be sent first, which breaks the order per ordering key",
            'use "fifo"',
        ),
        "enable.gapless.guarantee": _Rule(
            _is_true,
            "one refused message would stop the producer for all others",
            "remove it",
        ),
        "api.version.request": _Rule(
            _is_false,
            "record headers and idempotence need the broker's API versions",
            "remove it",
        ),
        "test.mock.num.brokers": _Rule(
            lambda text: not _is_zero(text),
            "records would go to a mock inside the process and be gone with it, yet count as SENT",
            "remove it; for a mock broker on a laptop use OUTBOX_BRIDGE_LOCAL_KAFKA=mock",
        ),
        "delivery.report.only.error": _Rule(
            _is_true,
            "the acknowledgements that make rows SENT would not arrive",
            "remove it",
            forcible=False,
        ),
        "transactional.id": _Rule(
            _always,
            "the relay opens no Kafka transactions, and such a producer sends nothing outside one",
            "remove it",
            forcible=False,
        ),
        "metadata.broker.list": _Rule(
            _always,
            "the brokers are given once, by kafka.bootstrap_servers",
            "use bootstrap_servers",
            forcible=False,
        ),
        "enabled_events": _Rule(
            _always, "the client library sets it itself", "remove it", forcible=False
        ),
    }
)

_CALLBACK = _Rule(
    _always,
    "it takes a Python object, which a file or the environment cannot hold",
    "remove it",
    forcible=False,
)


def refusal(name: str, value: Property) -> Refusal | None:
    """Tell why `name = value` would break a promise; None where it would not.

    The limit of `message.timeout.ms` depends on the lease and is checked with the settings.
    """
    known = canonical(name)
    rule = _RULES.get(known)
    if rule is None and (known.endswith("_cb") or known in {"on_delivery", "logger", "opaque"}):
        rule = _CALLBACK
    if rule is None or not rule.breaks(property_text(value).lower().strip()):
        return None
    return Refusal(name=name, reason=rule.reason, fix=rule.fix, forcible=rule.forcible)
