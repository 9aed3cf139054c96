"""What the shop's consumers have in common: inbox, retries, a span a message."""

from __future__ import annotations

from bridge.consumer import Consumer, Inbox, RetryPolicy
from bridge.settings import load_settings

_SESSION_MS, _HEARTBEAT_MS = 6000, 500
_NO_ANSWER = RetryPolicy(base=0.1, cap=1.0)


def consumer_of(topic: str, *, group: str) -> Consumer:
    """Return a consumer with its inbox in this service's own database.

    Without a dead-letter topic a message is tried until it succeeds. As a static member it gets its
    partitions back at once after a restart, instead of after its dead predecessor's time-out.
    """
    settings = load_settings()
    return Consumer(
        topic,
        group=f"{group}-{topic}",
        bootstrap_servers=settings.kafka.require_bootstrap_servers(),
        inbox=Inbox(settings.database_url),
        retry=_NO_ANSWER,
        static_member=group,
        kafka={"session_timeout_ms": _SESSION_MS, "heartbeat_interval_ms": _HEARTBEAT_MS},
        # One trace leads from the order's transaction to the notification.
        trace_as_child=True,
    )
