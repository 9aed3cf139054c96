"""Transactional outbox relay from PostgreSQL to Kafka.

For applications: `enqueue` and its kin write a message inside the business transaction. Names are
loaded on first use, so that `import bridge` costs nothing; using them loads psycopg and orjson.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridge.enqueue import (
        EnqueueResult,
        enqueue,
        enqueue_async,
        enqueue_many,
        enqueue_many_async,
    )
    from bridge.errors import (
        DuplicateKeyMismatch,
        EnqueueError,
        InvalidMessageError,
        OutboxError,
        TransactionStateError,
    )
    from bridge.message import Message
    from bridge.version import __version__

__all__ = [
    "DuplicateKeyMismatch",
    "EnqueueError",
    "EnqueueResult",
    "InvalidMessageError",
    "Message",
    "OutboxError",
    "TransactionStateError",
    "__version__",
    "enqueue",
    "enqueue_async",
    "enqueue_many",
    "enqueue_many_async",
]

_HOMES = {
    "Message": "bridge.message",
    "__version__": "bridge.version",
    "DuplicateKeyMismatch": "bridge.errors",
    "EnqueueError": "bridge.errors",
    "InvalidMessageError": "bridge.errors",
    "OutboxError": "bridge.errors",
    "TransactionStateError": "bridge.errors",
}


class _Package(ModuleType):
    """Keeps `bridge.enqueue` the function.

    Python binds a submodule to its package when it is imported; the module of that name must not
    take the function's place.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "enqueue" and isinstance(value, ModuleType):
            value = value.enqueue
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


if not TYPE_CHECKING:  # else a misspelt name would pass the type checker

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_HOMES.get(name, "bridge.enqueue")), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
