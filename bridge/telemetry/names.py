"""Every name that telemetry gives to the outside: metrics, spans, attributes, log fields (pure).

Names of OpenTelemetry's semantic conventions are written out here, because a process that only has
OpenTelemetry's API does not have the package of the conventions; a test compares them.
"""

from __future__ import annotations

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
