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
