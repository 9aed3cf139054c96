"""Messages as a test sees them, and assertions about them that explain themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, overload

from bridge.testing.explanation import Expectation, explain

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class EnqueuedMessage:
    """One row of the outbox.

    `payload` is the decoded JSON, bytes where there is a `content_type`, None for a tombstone;
    `payload_json` is the JSON's text, byte for byte as it will be sent. `is_later` tells whether it
    waits for its `not_before`.
    """

    outbox_id: int
    message_key: str
    event_type: str
    destination: str
    payload: Any
    ordering_key: str | None
    headers: dict[str, str]
    content_type: str | None
    status: str
    is_later: bool
    payload_json: bytes | None = field(repr=False)


class EnqueuedMessages(Sequence[EnqueuedMessage]):
    """What was enqueued, in the order of the ids. In every argument `...` stands for anything."""

    def __init__(self, messages: Sequence[EnqueuedMessage], hint: str = "") -> None:
        self._messages = tuple(messages)
        self._hint = hint

    @overload
    def __getitem__(self, index: int) -> EnqueuedMessage: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[EnqueuedMessage]: ...

    def __getitem__(self, index: int | slice) -> EnqueuedMessage | Sequence[EnqueuedMessage]:
        return self._messages[index]

    def __len__(self) -> int:
        return len(self._messages)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self._messages)})"

    @property
    def keys(self) -> list[str]:
        """The message keys."""
        return [message.message_key for message in self._messages]

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
        """Return the first message that fits; AssertionError, with what differs, where none does.

        `payload` is what the code gives to `enqueue` (a model too), or what arrives as JSON, where
        objects such as `unittest.mock.ANY` may stand; all of it must be equal. `headers` must be
        among the message's. With `count` exactly so many messages must fit.
        """
        __tracebackhide__ = True
        wanted = Expectation(event_type, key, destination, payload, ordering_key, headers or {})
        found = [message for message in self._messages if wanted.fits(message)]
        if not found or count not in (None, len(found)):
            raise AssertionError(explain(wanted, self._messages, len(found), count, self._hint))
        return found[0]

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
        wanted = Expectation(event_type, key, destination, payload, ordering_key, headers or {})
        found = [message for message in self._messages if wanted.fits(message)]
        if found:
            raise AssertionError(explain(wanted, self._messages, len(found), 0, self._hint))
