"""The error tree: every error says what happened, to which row or setting, and what to do next.

OutboxError
├── ConfigurationError      a setting is missing, unknown or contradicts another
├── EnqueueError            a message cannot be enqueued; nothing was written
│   ├── InvalidMessageError     one of its fields is unusable
│   ├── TransactionStateError   the connection is closed, failed, or in autocommit
│   └── DuplicateKeyMismatch    its key already stands for another event
├── SchemaError             the database schema is missing, older, newer or altered
├── DatabaseError           the database refused or could not be reached
├── KafkaError              Kafka refused or could not be reached
├── LocalError              a local PostgreSQL or Kafka could not be started
└── OperationError          an operator's command does not fit the row's state
    └── InvalidOperationError   what was given for an action is unusable (no reason, no rows …)
        └── InvalidSwitchError      a reason, number or window given for a switch is unusable
"""

from __future__ import annotations


class OutboxError(Exception):
    """Root of every error that outbox-bridge raises on purpose."""


class ConfigurationError(OutboxError):
    """A setting is missing, unknown, malformed, or contradicts another one."""


class EnqueueError(OutboxError):
    """A message cannot be enqueued; nothing was written."""


class InvalidMessageError(EnqueueError, ValueError):
    """A field of the message is unusable (too long, empty, not JSON, a reserved header …)."""


class TransactionStateError(EnqueueError):
    """The connection cannot take part in a business transaction: closed, failed, or autocommit."""


class DuplicateKeyMismatch(EnqueueError):  # noqa: N818 - the documented name
    """The message key already stands for another event; absorbing it would swallow this one."""


class SchemaError(OutboxError):
    """The database schema is missing, older, newer, or altered."""


class DatabaseError(OutboxError):
    """The database refused a command or could not be reached."""


class KafkaError(OutboxError):
    """Kafka refused a request or could not be reached."""


class LocalError(OutboxError):
    """A local PostgreSQL or Kafka could not be started, found or stopped."""


class OperationError(OutboxError):
    """An operator's command does not fit the state of the row it names."""


class InvalidOperationError(OperationError, ValueError):
    """What was given for an operator action is unusable (no reason, no selection, no payload)."""


class InvalidSwitchError(InvalidOperationError):
    """What was given for a run-time switch is unusable (no reason, no window, an unknown zone)."""
