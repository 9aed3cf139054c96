"""What to do with a message whose key is known already (pure)."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from bridge.errors import DuplicateKeyMismatch, InvalidMessageError

if TYPE_CHECKING:
    from collections.abc import Collection

    from bridge.draft import Draft

OnDuplicate = Literal["error", "absorb", "strict"]

_POLICIES = ("error", "absorb", "strict")
_IDENTITY = frozenset({"destination", "event_type", "ordering_key"})


class Content(NamedTuple):
    """What must agree for two messages with one key to be the same event; headers never count."""

    destination: str
    event_type: str
    ordering_key: str | None
    content_type: str | None
    payload_json: bytes | None
    payload_bytes: bytes | None

    @classmethod
    def of(cls, draft: Draft) -> Content:
        """Return the content of a message that is about to be written."""
        text = draft.payload_json
        return cls(
            draft.destination,
            draft.event_type,
            draft.ordering_key,
            draft.content_type,
            None if text is None else text.encode(),
            draft.payload_bytes,
        )


class DuplicateRule(NamedTuple):
    """What is refused under a known key.

    `error`: another destination, event type or ordering key; `strict`: another payload as well;
    `absorb`: nothing. `ignore` names top-level fields of JSON payloads that do not count.
    """

    on_duplicate: OnDuplicate
    ignore: frozenset[str]

    @classmethod
    def checked(cls, on_duplicate: Any, ignore: Any) -> DuplicateRule:
        """Build a rule from an application's arguments; raise InvalidMessageError."""
        if on_duplicate not in _POLICIES:
            raise InvalidMessageError(
                f"on_duplicate must be one of {', '.join(_POLICIES)}, not {on_duplicate!r}"
            )
        if isinstance(ignore, (str, bytes)):
            raise InvalidMessageError(f"ignore must be a collection of names; write ({ignore!r},)")
        names = frozenset(ignore)
        if not all(isinstance(name, str) for name in names):
            raise InvalidMessageError("ignore must hold names of top-level fields, as str")
        return cls(on_duplicate, names)

    def judge(self, message_key: str, new: Content, known: Content, holder: str) -> bool:
        """Return whether an absorbed message's content differs from the known one.

        Raises DuplicateKeyMismatch where the rule forbids to absorb it; `holder` says who has the
        key, for the message.
        """
        different = _differences(new, known, self.ignore)
        if self.on_duplicate == "strict":
            refused = different
        elif self.on_duplicate == "error":
            refused = [name for name in different if name in _IDENTITY]
        else:
            refused = []
        if refused:
            details = ", ".join(_describe(name, new, known) for name in refused)
            raise DuplicateKeyMismatch(
                f"message_key {message_key!r} already stands for another event, {holder}: "
                f'{details}; make the key unique for each event, or pass on_duplicate="absorb"'
            )
        return bool(different)


def _differences(new: Content, known: Content, ignore: Collection[str]) -> list[str]:
    names = [
        name
        for name in ("destination", "event_type", "ordering_key", "content_type")
        if getattr(new, name) != getattr(known, name)
    ]
    if new.payload_bytes != known.payload_bytes or not _same_json(
        new.payload_json, known.payload_json, ignore
    ):
        names.append("payload")
    return names


def _describe(name: str, new: Content, known: Content) -> str:
    if name == "payload":
        return "payload differs"
    return f"{name} is {getattr(new, name)!r} here and {getattr(known, name)!r} there"


def _same_json(left: bytes | None, right: bytes | None, ignore: Collection[str]) -> bool:
    """Compare as jsonb does: of equal keys the last counts, 1 equals 1.0, order is free."""
    if left is None or right is None or left == right:
        return left == right
    try:
        one, other = (
            json.loads(text, parse_float=Decimal, parse_int=Decimal) for text in (left, right)
        )
    except RecursionError:
        return False
    if ignore and isinstance(one, dict) and isinstance(other, dict):
        one, other = (
            {name: value for name, value in item.items() if name not in ignore}
            for item in (one, other)
        )
    return _equal(one, other)


def _equal(left: Any, right: Any) -> bool:
    pairs = [(left, right)]
    while pairs:
        one, other = pairs.pop()
        if type(one) is not type(other):  # True is not 1 here, though Python says so
            return False
        if isinstance(one, dict):
            if one.keys() != other.keys():
                return False
            pairs += [(value, other[name]) for name, value in one.items()]
        elif isinstance(one, list):
            if len(one) != len(other):
                return False
            pairs += zip(one, other, strict=True)
        elif one != other:
            return False
    return True
