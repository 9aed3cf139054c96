"""The outbox as a Django app: `"bridge.integrations.django"` in INSTALLED_APPS.

`enqueue` and `enqueue_many` write inside `transaction.atomic()`, through Django's own connection.
`manage.py migrate` creates the outbox, the admin shows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.enqueue_plan import EnqueueArguments, plan_many, plan_one

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Unpack

    from bridge.enqueue_plan import EnqueueOptions
    from bridge.enqueue_steps import EnqueueResult
    from bridge.message import Message

__all__ = ["enqueue", "enqueue_many"]


def enqueue(*, using: str | None = None, **arguments: Unpack[EnqueueArguments]) -> EnqueueResult:
    """Write one message in the transaction of the database `using`; see `bridge.enqueue`.

    Takes its keyword arguments but `allow_autocommit`: outside `transaction.atomic()` it raises
    TransactionStateError, and so it does where only a TestCase has opened a transaction. Without
    `using` the database routers choose; `schema` is the setting OUTBOX_BRIDGE_SCHEMA.
    """
    # The app registry imports this package before models may be loaded.
    from bridge.integrations.django.transactions import run, writable  # noqa: PLC0415

    arguments.setdefault("schema", default_schema())
    connection = writable(using)
    return run(connection, plan_one(**arguments), arguments["schema"])


def enqueue_many(
    messages: Iterable[Message | Mapping[str, Any]],
    *,
    using: str | None = None,
    **options: Unpack[EnqueueOptions],
) -> list[EnqueueResult]:
    """Write many messages with one INSERT, all or nothing; see `bridge.enqueue_many`."""
    from bridge.integrations.django.transactions import run, writable  # noqa: PLC0415 - see above

    options.setdefault("schema", default_schema())
    connection = writable(using)
    return run(connection, plan_many(messages, **options), options["schema"])


def default_schema() -> str:
    """Return the schema that holds the outbox: the Django setting, or `public`."""
    from django.conf import settings  # noqa: PLC0415 - see above

    schema: str = getattr(settings, "OUTBOX_BRIDGE_SCHEMA", "public")
    return schema
