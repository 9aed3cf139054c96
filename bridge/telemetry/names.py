"""Every name that telemetry gives to the outside: metrics, spans, attributes, log fields (pure).

Names of OpenTelemetry's semantic conventions are written out here, because a process that only has
OpenTelemetry's API does not have the package of the conventions; a test compares them. A
relay's metrics: what is in `METRICS` is all there is; `docs/metrics.md` shows it, and a test keeps
page, code and what a running relay exports the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

# --- Spans ----------------------------------------------------------------------------------------

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
"""The version of the semantic conventions that spans follow."""
SCOPE = "outbox-bridge"
"""The instrumentation scope of every span."""

CREATE = "create"
"""`create {destination}`, PRODUCER: a message was written to the outbox."""
SEND = "send"
"""`send {topic}`, CLIENT: a relay handed messages of one claim to Kafka and had their reports."""
PROCESS = "process"
"""`process {topic}`, CONSUMER: a consumer handled one message, or one batch of them."""

# OpenTelemetry's semantic conventions, messaging.
MESSAGING_SYSTEM = "messaging.system"
MESSAGING_OPERATION_NAME = "messaging.operation.name"
MESSAGING_OPERATION_TYPE = "messaging.operation.type"
MESSAGING_DESTINATION_NAME = "messaging.destination.name"
MESSAGING_DESTINATION_PARTITION_ID = "messaging.destination.partition.id"
MESSAGING_BATCH_MESSAGE_COUNT = "messaging.batch.message_count"
MESSAGING_CLIENT_ID = "messaging.client.id"
MESSAGING_CONSUMER_GROUP_NAME = "messaging.consumer.group.name"
MESSAGING_KAFKA_MESSAGE_KEY = "messaging.kafka.message.key"
MESSAGING_KAFKA_MESSAGE_TOMBSTONE = "messaging.kafka.message.tombstone"
MESSAGING_KAFKA_OFFSET = "messaging.kafka.offset"
ERROR_TYPE = "error.type"
KAFKA = "kafka"
"""The value of messaging.system."""

# Ours.
OUTBOX_ID = "outbox.id"
"""outbox_id, int."""
OUTBOX_MESSAGE_KEY = "outbox.message_key"
"""message_key: the idempotency key."""
OUTBOX_EVENT_TYPE = "outbox.event_type"
OUTBOX_DUPLICATE = "outbox.duplicate"
"""bool: on `create`, a row with this key was there; on `process`, the inbox knew the key."""
OUTBOX_ATTEMPT = "outbox.attempt"
"""int: the how-manieth time the row was handed to Kafka."""
OUTBOX_RELAY = "outbox.relay"
"""The relay's name, as in locked_by."""
OUTBOX_CLAIM_ID = "outbox.claim_id"
OUTBOX_CLAIM_ROWS = "outbox.claim_rows"
"""int: rows of the claim, whether they are sampled or not."""
OUTBOX_WAIT = "outbox.wait"
"""Seconds from created_at until the message was handed to Kafka; on each link of `send`."""
OUTBOX_LONGEST_WAIT = "outbox.longest_wait"
"""The largest outbox.wait of a `send` span's links."""
OUTBOX_UNLINKED = "outbox.unlinked"
"""int: messages of a `send` span's batch beyond the first 128, which it has no links to."""
OUTBOX_TRANSIT = "outbox.transit"
"""Seconds from the record's timestamp, when a relay made it, until a consumer began with it."""

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
BAGGAGE = "baggage"
SAMPLED = frozenset("13579bdfBDF")
"""Last characters of a traceparent whose flags say sampled."""

# Log fields of a line that is about one message, or within one span.
LOG_TRACE_ID = "trace_id"
LOG_SPAN_ID = "span_id"
LOG_OUTBOX_ID = "outbox_id"
LOG_MESSAGE_KEY = "message_key"

# --- Metrics --------------------------------------------------------------------------------

METER = "outbox_bridge"
OTHER = "other"
"""Stands for all destinations beyond the limit of label values."""


class Kind(StrEnum):
    """What an instrument measures."""

    COUNTER = "counter"
    """Only ever grows while the relay runs."""
    GAUGE = "gauge"
    """What is now."""
    HISTOGRAM = "histogram"
    """How long, and how often."""


class Group(StrEnum):
    """Who exports a metric."""

    MESSAGING = "messaging"
    """Every relay; OpenTelemetry's names."""
    RELAY = "relay"
    """Every relay, of itself."""
    BACKLOG = "backlog"
    """The leading relay alone, of the whole database."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `unit` is UCUM as OpenTelemetry writes it; `labels` are attribute names."""

    name: str
    kind: Kind
    unit: str
    labels: tuple[str, ...]
    group: Group
    meaning: str

    @property
    def prometheus_name(self) -> str:
        """The name on the Prometheus endpoint; a histogram has `_bucket`, `_sum` and `_count`."""
        suffix = {"s": "_seconds", "By": "_bytes"}.get(self.unit, "")
        return (
            self.name.replace(".", "_") + suffix + ("_total" if self.kind is Kind.COUNTER else "")
        )

    @property
    def prometheus_labels(self) -> tuple[str, ...]:
        """The labels on the Prometheus endpoint."""
        return tuple(label.replace(".", "_") for label in self.labels)


_SEND = (
    MESSAGING_SYSTEM,
    MESSAGING_OPERATION_NAME,
    MESSAGING_OPERATION_TYPE,
    MESSAGING_DESTINATION_NAME,
    ERROR_TYPE,
)
_HERE = ("destination",)
_BY_RELAY, _BY_LEADER = Group.RELAY, Group.BACKLOG


OPERATION_DURATION = Metric(
    "messaging.client.operation.duration",
    Kind.HISTOGRAM,
    "s",
    _SEND,
    Group.MESSAGING,
    "From handing a batch's records to the Kafka client to the last of its acknowledgements, or to "
    "a refusal (`error.type`); one measurement for each batch and topic, which is the operation.",
)
SENT_MESSAGES = Metric(
    "messaging.client.sent.messages",
    Kind.COUNTER,
    "{message}",
    _SEND,
    Group.MESSAGING,
    "Records that Kafka acknowledged, or refused (`error.type`). A record that is sent again "
    "counts again.",
)
DELIVERY_DURATION = Metric(
    "outbox_bridge.delivery.duration",
    Kind.HISTOGRAM,
    "s",
    _HERE,
    _BY_RELAY,
    "Commit to acknowledgement, one measurement for each row: from when the row could first go out "
    "(the start of the transaction that enqueued it, or the later time it was scheduled or put off "
    "to) to the broker's acknowledgement.",
)
CLAIMED = Metric(
    "outbox_bridge.relay.claimed", Kind.COUNTER, "{message}", (), _BY_RELAY, "Rows claimed."
)
SENT = Metric(
    "outbox_bridge.relay.sent",
    Kind.COUNTER,
    "{message}",
    (),
    _BY_RELAY,
    "Rows marked SENT after the broker's acknowledgement.",
)
RETRIED = Metric(
    "outbox_bridge.relay.retried",
    Kind.COUNTER,
    "{message}",
    (),
    _BY_RELAY,
    "Rows given back for a later attempt, one attempt charged.",
)
FAILED = Metric(
    "outbox_bridge.relay.failed",
    Kind.COUNTER,
    "{message}",
    (),
    _BY_RELAY,
    "Rows that ended FAILED: refused, or out of attempts.",
)
RELEASED = Metric(
    "outbox_bridge.relay.released",
    Kind.COUNTER,
    "{message}",
    (),
    _BY_RELAY,
    "Rows given back uncharged.",
)
RESCUED = Metric(
    "outbox_bridge.relay.rescued",
    Kind.COUNTER,
    "{message}",
    (),
    _BY_RELAY,
    "Rows that this relay took back from dead, frozen or hung ones.",
)
LOST_LEASES = Metric(
    "outbox_bridge.relay.lost_leases",
    Kind.COUNTER,
    "{message}",
    (),
    _BY_RELAY,
    "Acknowledgements whose row somebody else had claimed, edited or cancelled meanwhile.",
)
IN_FLIGHT = Metric(
    "outbox_bridge.relay.in_flight",
    Kind.GAUGE,
    "{message}",
    _HERE,
    _BY_RELAY,
    "Rows claimed and not settled yet.",
)
IN_FLIGHT_PAYLOAD = Metric(
    "outbox_bridge.relay.in_flight.payload",
    Kind.GAUGE,
    "By",
    (),
    _BY_RELAY,
    "Payload in memory of what is in flight.",
)
BREAKER = Metric(
    "outbox_bridge.relay.breaker",
    Kind.GAUGE,
    "1",
    ("destination", "state"),
    _BY_RELAY,
    "1 for the state that the destination's breaker is in, 0 for the others: `closed` (flows), "
    "`open` (fails), `trying`, `unknown` (nobody has looked at its topic yet). For `other` it is "
    "the number of destinations.",
)
KAFKA_OUTAGE = Metric(
    "outbox_bridge.relay.kafka.outage",
    Kind.GAUGE,
    "1",
    (),
    _BY_RELAY,
    "1 while no broker answers and nothing is claimed.",
)
DATABASE_LOST = Metric(
    "outbox_bridge.relay.database.lost",
    Kind.GAUGE,
    "1",
    (),
    _BY_RELAY,
    "1 while any of the relay's sessions is without a connection.",
)
DATABASE_REFUSES = Metric(
    "outbox_bridge.relay.database.refuses",
    Kind.GAUGE,
    "1",
    (),
    _BY_RELAY,
    "1 while the server refuses statements (disk full, out of memory).",
)
LIVE = Metric(
    "outbox_bridge.relay.live",
    Kind.GAUGE,
    "1",
    (),
    _BY_RELAY,
    "What `/livez` says: 1 while every thread gives signs of life.",
)
READY = Metric(
    "outbox_bridge.relay.ready",
    Kind.GAUGE,
    "1",
    (),
    _BY_RELAY,
    "What `/readyz` says: 1 while the relay can send.",
)
STAGE_SILENCE = Metric(
    "outbox_bridge.relay.stage.silence",
    Kind.GAUGE,
    "s",
    ("stage",),
    _BY_RELAY,
    "Since when a thread has given no sign of life. Waiting for PostgreSQL or Kafka is no silence.",
)
LEADER = Metric(
    "outbox_bridge.relay.leader",
    Kind.GAUGE,
    "1",
    (),
    _BY_RELAY,
    "1 at the relay that samples the backlog, prunes and repairs for all.",
)
BACKLOG = Metric(
    "outbox_bridge.backlog.messages",
    Kind.GAUGE,
    "{message}",
    ("destination", "status"),
    _BY_LEADER,
    "Rows in the table by status.",
)
BACKLOG_DUE = Metric(
    "outbox_bridge.backlog.due",
    Kind.GAUGE,
    "{message}",
    _HERE,
    _BY_LEADER,
    "PENDING rows that may go out now; the other PENDING ones are scheduled or put off.",
)
OLDEST_AGE = Metric(
    "outbox_bridge.backlog.oldest.age",
    Kind.GAUGE,
    "s",
    _HERE,
    _BY_LEADER,
    "Since when the longest waiting row could have gone out; 0 where none waits.",
)
SAMPLE_AGE = Metric(
    "outbox_bridge.backlog.sample.age",
    Kind.GAUGE,
    "s",
    (),
    _BY_LEADER,
    "How old the figures of the backlog are. Where they are older than three intervals, none are "
    "exported.",
)
SAMPLE_DURATION = Metric(
    "outbox_bridge.backlog.sample.duration",
    Kind.GAUGE,
    "s",
    (),
    _BY_LEADER,
    "How long the last sample took.",
)
HELD_KEYS = Metric(
    "outbox_bridge.keys.held",
    Kind.GAUGE,
    "{key}",
    _HERE,
    _BY_LEADER,
    "Ordering keys that a failed or waiting row holds up.",
)
KEY_FOLLOWERS = Metric(
    "outbox_bridge.keys.followers",
    Kind.GAUGE,
    "{message}",
    _HERE,
    _BY_LEADER,
    "Rows parked behind held keys.",
)
RELAYS = Metric(
    "outbox_bridge.relays",
    Kind.GAUGE,
    "{relay}",
    ("state",),
    _BY_LEADER,
    "Registered relays: `living`, `stopping`, `frozen`, `dead`.",
)
SWITCHES = Metric(
    "outbox_bridge.switch",
    Kind.GAUGE,
    "1",
    ("destination", "switch"),
    _BY_LEADER,
    "1 for each switch in force: `paused`, `quiet_hours`, `rows_per_second`, `batch_rows`; "
    "destination `*` stands for all.",
)

METRICS = tuple(value for value in list(globals().values()) if isinstance(value, Metric))

OPERATION_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""Upper bounds in seconds, as the semantic conventions advise."""
DELIVERY_BOUNDS = (
    *(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
    *(300, 900, 3600, 14400, 86400),
)
"""Upper bounds in seconds: from a wake-up to what waited over a weekend."""

# --- Consumer -------------------------------------------------------------------------------------

CONSUMER_METER = "outbox_bridge.consumer"
"""The instrumentation scope of a consumer's metrics."""

# OpenTelemetry's semantic conventions, messaging.
CONSUMED_MESSAGES = "messaging.client.consumed.messages"
"""Counter: records that came from Kafka, repeated ones included. By topic and group."""
PROCESS_DURATION = "messaging.process.duration"
"""Histogram, s: one message, or one batch, through inbox and handler. Also by error.type."""
POLL = "poll"
"""The operation's name in messaging.client.consumed.messages."""

# Ours; all by messaging.destination.name and messaging.consumer.group.name.
CONSUMER_PROCESSED = "outbox_bridge.consumer.processed"
"""Counter: messages whose handler did its work, for the first time."""
CONSUMER_DUPLICATES = "outbox_bridge.consumer.duplicates"
"""Counter: messages that the inbox knew, absorbed."""
CONSUMER_CONFLICTS = "outbox_bridge.consumer.conflicts"
"""Counter: messages whose key stands for other content in the inbox."""
CONSUMER_UNHANDLED = "outbox_bridge.consumer.unhandled"
"""Counter: messages of types that no handler wants."""
CONSUMER_RETRIES = "outbox_bridge.consumer.retries"
"""Counter: failed tries; attribute `charged`: whether it counts against the message's attempts."""
CONSUMER_DEAD_LETTERS = "outbox_bridge.consumer.dead_letters"
"""Counter: messages sent to the dead-letter topic; attribute `code`."""
CONSUMER_BLOCKED = "outbox_bridge.consumer.blocked"
"""Counter: tries that left a key held up for want of a dead-letter topic; attribute `code`."""
CONSUMER_REORDERINGS = "outbox_bridge.consumer.reorderings"
"""Counter: new messages older, by outbox-id, than one of their key that was processed before."""
CONSUMER_GAPS = "outbox_bridge.consumer.gaps"
"""Counter: messages known to be missing; attribute `kind`: `expired`, or `sequence` of a key."""
CONSUMER_LAG = "outbox_bridge.consumer.lag"
"""Gauge: records of a partition that are not done with; attribute of the partition too."""
CONSUMER_PENDING = "outbox_bridge.consumer.pending"
"""Gauge: records fetched and not done with."""

CHARGED = "charged"
CODE = "code"
KIND = "kind"
