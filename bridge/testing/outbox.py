"""What was enqueued since a test began, through the connection that the test has."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bridge.database.migration_script import check_schema_name
from bridge.database.statements import load
from bridge.enqueue_steps import Row, Step, Steps
from bridge.testing import connections
from bridge.testing.messages import EnqueuedMessage, EnqueuedMessages

if TYPE_CHECKING:
    from collections.abc import Mapping

_SEPARATE = (
    "the outbox is read over a connection of its own, which sees only what is committed: where the "
    "test runs in a transaction, override the fixture outbox_connection or call "
    "outbox.seen_by(connection)"
)


class Outbox:
    """The messages enqueued after this object was made, read anew by each call.

    `connection` decides what is seen: through the test's own connection also what is not committed
    yet, and no longer what was rolled back. `is_separate` adds that to a failure's explanation.
    A message that was absorbed, because its key is known, is not a new one.
    """

    def __init__(
        self, connection: Any, *, schema: str = "public", is_separate: bool = False
    ) -> None:
        self._connection = connection
        self._schema = check_schema_name(schema)
        self._hint = _SEPARATE if is_separate else ""
        self._newest: tuple[int, str] = (0, "")
        self.forget()

    def forget(self) -> None:
        """Count from here on: what was enqueued so far is none of the test's."""
        steps = _read_newest(self._schema)
        self._newest = connections.run(self._connection, steps, self._schema)

    @property
    def messages(self) -> EnqueuedMessages:
        """The messages as of now."""
        steps = _read_messages(self._newest, self._schema)
        return EnqueuedMessages(connections.run(self._connection, steps, self._schema), self._hint)

    def seen_by(self, connection: Any) -> EnqueuedMessages:
        """Return the messages that another connection or Session sees."""
        steps = _read_messages(self._newest, self._schema)
        return EnqueuedMessages(connections.run(connection, steps, self._schema))

    async def seen_by_async(self, connection: Any) -> EnqueuedMessages:
        """Return the messages that an asynchronous connection or AsyncSession sees."""
        steps = _read_messages(self._newest, self._schema)
        return EnqueuedMessages(await connections.run_async(connection, steps, self._schema))

    def assert_enqueued(
        self,
        event_type: Any = ...,
        *,
        key: Any = ...,
        destination: Any = ...,
        payload: Any = ...,
        ordering_key: Any = ...,
        headers: Mapping[str, Any] | None = None,
        count: int | None = None,
    ) -> EnqueuedMessage:
        """Return the first message that fits; see `EnqueuedMessages.assert_enqueued`."""
        __tracebackhide__ = True
        return self.messages.assert_enqueued(
            event_type,
            key=key,
            destination=destination,
            payload=payload,
            ordering_key=ordering_key,
            headers=headers,
            count=count,
        )

    def assert_not_enqueued(
        self,
        event_type: Any = ...,
        *,
        key: Any = ...,
        destination: Any = ...,
        payload: Any = ...,
        ordering_key: Any = ...,
        headers: Mapping[str, Any] | None = None,
    ) -> None:
        """Raise AssertionError where a message fits; without arguments where there is any."""
        __tracebackhide__ = True
        self.messages.assert_not_enqueued(
            event_type,
            key=key,
            destination=destination,
            payload=payload,
            ordering_key=ordering_key,
            headers=headers,
        )


def _read_newest(schema: str) -> Steps[tuple[int, str]]:
    rows = yield Step(load("find_newest_message", schema), {})
    return (int(rows[0][0]), str(rows[0][1])) if rows else (0, "")


def _read_messages(newest: tuple[int, str], schema: str) -> Steps[list[EnqueuedMessage]]:
    parameters = {"outbox_id": newest[0], "message_key": newest[1]}
    rows = yield Step(load("list_enqueued", schema), parameters)
    return [_message_of(row) for row in rows]


def _message_of(row: Row) -> EnqueuedMessage:
    headers, text, raw = (None if value is None else bytes(value) for value in row[6:9])
    return EnqueuedMessage(
        outbox_id=int(row[0]),
        message_key=row[1],
        event_type=row[2],
        destination=row[3],
        payload=json.loads(text) if text is not None else raw,
        ordering_key=row[4],
        headers=json.loads(headers or b"{}"),
        content_type=row[5],
        status=row[9],
        is_later=bool(row[10]),
        payload_json=text,
    )
