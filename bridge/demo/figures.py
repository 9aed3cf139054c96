"""Everything the demo counted, each figure from its own source (pure)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The demo's numbers.

    By where they come from: the shop's business table (`orders`, `order_events`), the shop's own
    notes (`rollbacks`, `rolled_back`, `enqueued_twice`, `absorbed`), the outbox (`enqueued`,
    `sent`, `rescued`, `in_flight_at_kill`), the topics (`records_in_topics`), the consumer's
    notes (`received`, `received_distinct`, `lost`, `phantoms`, `rolled_back_received`,
    `stray_duplicates`, `inversions`) and its table of processed keys (`processed`, `handled`).
    """

    broker: str
    is_real_kafka: bool
    database: str
    messages_asked: int
    orders: int
    """Rows of the business table."""
    order_events: int
    """Messages that these rows imply by their status."""
    enqueued: int
    """Rows of the outbox."""
    rollbacks: int
    """Transactions that the shop rolled back on purpose."""
    rolled_back: int
    """Messages that were enqueued in them."""
    rolled_back_enqueued: int
    """How many of these stand in the outbox all the same: none may."""
    enqueued_twice: int
    """Messages that the shop enqueued a second time."""
    absorbed: int
    """How many of these the outbox absorbed."""
    sent: int
    """Outbox rows that are SENT."""
    records_in_topics: int
    received: int
    """Records that the consumer received."""
    received_distinct: int
    """Different keys among them."""
    processed: int
    """Keys in the consumer's table."""
    handled: int
    """Times that its business effect was applied."""
    lost: int
    """Committed messages that never came."""
    phantoms: int
    """Received keys that were never committed."""
    rolled_back_received: int
    """Received keys of messages that were rolled back."""
    duplicates: int
    """Records received more often than once."""
    stray_duplicates: int
    """Duplicates of rows that were not in flight at the killed relay."""
    inversions: int
    """First occurrences out of outbox_id order within their ordering key."""
    ordered: int
    """Received messages that have an ordering key."""
    kills: int
    """Times a relay was killed: once, unless its last statement settled everything after all."""
    in_flight_at_kill: int
    """Rows claimed and not settled by the killed relay at its death."""
    rescued: int
    """Rows taken back from it."""
    rescue_seconds: float | None
    """From the kill until the last of them was taken back."""
    unclean_relays: tuple[str, ...]
    """Relays that did not end in good order when asked to."""
    backlog: int
    """Messages that waited when the relays started."""
    throughput: float | None
    """Messages a second of the backlog: from a relay's registration to the last receipt."""
    latency_messages: int
    """Messages of the steady act, over which the latency is measured."""
    latency_rate: float
    """Messages a second that the steady act committed, in an open loop."""
    latency_p50_ms: float | None
    """From the commit's return in the shop to the record's arrival in the consumer."""
    latency_p99_ms: float | None
    seconds: float
