"""Exit codes of every command."""

from __future__ import annotations

from bridge.errors import (
    ConfigurationError,
    DuplicateKeyMismatch,
    InvalidMessageError,
    InvalidOperationError,
    OperationError,
    OutboxError,
    SchemaError,
)

OK = 0
FAILURE = 1
USAGE = 2
"""A command line, a setting or a message that cannot be used as it is."""
PRECONDITION = 3
"""A missing or other schema, a row in the wrong state, a part that is not installed."""
INTERRUPTED = 130
BROKEN_PIPE = 141
"""What a shell reports of a program whose reader went away (128 + SIGPIPE)."""


def exit_code(error: OutboxError) -> int:
    """Return the exit code that stands for an error."""
    if isinstance(error, ConfigurationError | InvalidMessageError | InvalidOperationError):
        return USAGE
    if isinstance(error, SchemaError | OperationError | DuplicateKeyMismatch):
        return PRECONDITION
    return FAILURE
