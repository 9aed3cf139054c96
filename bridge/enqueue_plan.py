"""What a call of `enqueue` comes to: checked messages, and the statements that write them.

The one way into the outbox for every driver: the rules are here and in what this module calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from bridge.draft import Draft, check_message
from bridge.duplicates import DuplicateRule, OnDuplicate
from bridge.enqueue_steps import EnqueueResult, Steps, write_many, write_one
from bridge.errors import InvalidMessageError
from bridge.message import Message
from bridge.payload import DEFAULT_MAX_PAYLOAD_BYTES
from bridge.telemetry.creation import Creations

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import datetime
    from typing import NotRequired

DEFAULT_SCHEMA = "public"


class EnqueueOptions(TypedDict, total=False):
    """What a call may say beside its messages; see `bridge.enqueue`."""

    on_duplicate: OnDuplicate
    ignore: Collection[str]
    schema: str
    max_payload_bytes: int


class EnqueueArguments(EnqueueOptions):
    """The keyword arguments of one message; see `bridge.enqueue`."""

    message_key: str
    event_type: str
    destination: str
    payload: Any
    content_type: NotRequired[str | None]
    headers: NotRequired[Mapping[str, str] | None]
    ordering_key: NotRequired[str | None]
    not_before: NotRequired[datetime | None]
    max_retry_count: NotRequired[int | None]


def plan_one(
    *,
    on_duplicate: OnDuplicate = "error",
    ignore: Collection[str] = (),
    schema: str = DEFAULT_SCHEMA,
    max_payload_bytes: int = DEFAULT_MAX_PAYLOAD_BYTES,
    **fields: Any,
) -> Steps[EnqueueResult]:
    """Check one message, whose fields are those of Message, and return what writes it.

    Raises InvalidMessageError; running the steps raises the rest.
    """
    message = Message(**fields)
    rule = DuplicateRule.checked(on_duplicate, ignore)
    with Creations() as creations:
        draft = check_message(message, creations.begin(message), max_payload_bytes)
    return creations.around(write_one(draft, rule, schema))


def plan_many(
    messages: Iterable[Message | Mapping[str, Any]],
    *,
    on_duplicate: OnDuplicate = "error",
    ignore: Collection[str] = (),
    schema: str = DEFAULT_SCHEMA,
    max_payload_bytes: int = DEFAULT_MAX_PAYLOAD_BYTES,
    savepoint: bool = True,
) -> Steps[list[EnqueueResult]]:
    """Check many messages and return what writes them.

    `savepoint` takes back what was written where one is refused. Raises InvalidMessageError.
    """
    rule = DuplicateRule.checked(on_duplicate, ignore)
    with Creations() as creations:
        drafts = _check_all(messages, max_payload_bytes, creations)
    return creations.around(write_many(drafts, rule, schema, savepoint=savepoint))


def _check_all(
    messages: Iterable[Message | Mapping[str, Any]], max_payload_bytes: int, creations: Creations
) -> list[Draft]:
    if isinstance(messages, (str, bytes, Mapping)):
        raise InvalidMessageError(
            f"messages must be a list of Message, not {type(messages).__name__}"
        )
    drafts = []
    for index, message in enumerate(messages):
        try:
            if not isinstance(message, Message):
                message = _message_of(message)  # noqa: PLW2901 - both kinds are one from here on
            drafts.append(check_message(message, creations.begin(message), max_payload_bytes))
        except InvalidMessageError as error:
            raise InvalidMessageError(f"messages[{index}]: {error}") from error
    return drafts


def _message_of(mapping: object) -> Message:
    if not isinstance(mapping, Mapping):
        raise InvalidMessageError(f"expected Message or a mapping, not {type(mapping).__name__}")
    try:
        return Message(**mapping)
    except TypeError as error:
        text = str(error).removeprefix("Message.__init__() ")
        raise InvalidMessageError(f"not the fields of a Message: {text}") from error
