"""Runs the statements of enqueueing on a Django connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from django.db import connections, router
from django.db.transaction import TransactionManagementError
from django.db.utils import Error

from bridge.enqueue_steps import Row, Step, Steps, run_steps
from bridge.errors import TransactionStateError
from bridge.integrations.django.models import OutboxMessage
from bridge.write_failures import translate, translate_driver_error

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

T = TypeVar("T")


def writable(using: str | None) -> BaseDatabaseWrapper:
    """Return the connection, inside a transaction of the application's; TransactionStateError."""
    connection = connections[using or router.db_for_write(OutboxMessage)]
    if connection.vendor != "postgresql":
        raise TransactionStateError(
            f"the outbox is in PostgreSQL, and database {connection.alias!r} is "
            f"{connection.vendor}; name another with using="
        )
    # As atomic(durable=True) does: a TestCase's transaction is not there in production.
    blocks: list[Any] = getattr(connection, "atomic_blocks", [])
    only_of_tests = bool(blocks) and all(getattr(b, "_from_testcase", False) for b in blocks)
    if only_of_tests or (not connection.in_atomic_block and connection.get_autocommit()):
        raise TransactionStateError(
            f"database {connection.alias!r} is in autocommit"
            + (" (only the test case has a transaction open)" if only_of_tests else "")
            + ", so the message would be committed apart from the business data: use "
            "`with transaction.atomic():` around both"
        )
    return connection


def run(connection: BaseDatabaseWrapper, steps: Steps[T], schema: str) -> T:
    """Run the statements of `bridge.enqueue_steps`; errors of the server come as Django's."""

    def execute(step: Step) -> list[Row]:
        with connection.cursor() as cursor:
            cursor.execute(step.statement.decode(), step.parameters)
            return cursor.fetchall() if step.returns_rows else []

    try:
        return run_steps(steps, execute)
    except UnicodeEncodeError as error:
        raise translate(error, schema) or error from error
    except TransactionManagementError as error:  # an atomic block that is to be rolled back
        raise TransactionStateError(
            f"the transaction has failed already ({error}): leave the atomic block"
        ) from error
    except Error as error:
        translated = translate_driver_error(error.__cause__, schema)
        if translated is None:
            raise
        raise translated from error
