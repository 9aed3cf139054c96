"""What a test expects of a message, and why no message fits (pure)."""

from __future__ import annotations

import difflib
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from bridge.errors import InvalidMessageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bridge.testing.messages import EnqueuedMessage

_SHOWN = 20
"""Messages listed by a failure."""
_PAYLOAD = "payload"


class Expectation(NamedTuple):
    """Fields of a message; `...` stands for anything, `headers` for those that must be there."""

    event_type: Any
    key: Any
    destination: Any
    payload: Any
    ordering_key: Any
    headers: Mapping[str, Any]

    def fits(self, message: EnqueuedMessage) -> bool:
        """Tell whether a message is as expected."""
        return not self.differences(message)

    def differences(self, message: EnqueuedMessage) -> dict[str, tuple[Any, Any]]:
        """Return what is otherwise: field to expected and actual value."""
        pairs = {
            "event_type": (self.event_type, message.event_type),
            "key": (self.key, message.message_key),
            "destination": (self.destination, message.destination),
            "ordering_key": (self.ordering_key, message.ordering_key),
        }
        for name, value in self.headers.items():
            pairs[f"header {name}"] = (value, message.headers.get(name))
        found = {
            name: (wanted, actual)
            for name, (wanted, actual) in pairs.items()
            if wanted is not ... and wanted != actual
        }
        if self.payload is not ... and not _same_payload(self.payload, message):
            found[_PAYLOAD] = (_as_json(self.payload), message.payload)
        return found

    def __str__(self) -> str:
        given = {**self._asdict(), "headers": self.headers or ...}
        parts = [f"{name}={value!r}" for name, value in given.items() if value is not ...]
        return ", ".join(parts) or "any message"


def explain(
    wanted: Expectation,
    messages: Sequence[EnqueuedMessage],
    found: int,
    count: int | None,
    hint: str,
) -> str:
    """Say what was expected, what is there, and how the message that comes closest differs."""
    if found:
        first = f"{found} messages fit, expected {count}: {wanted}"
        if found == 1:
            first = f"1 message fits, expected {count}: {wanted}"
    else:
        first = f"no message fits: {wanted}"
    lines = [first]
    if not messages:
        lines.append("nothing was enqueued, or it was rolled back" + (f"; {hint}" if hint else ""))
        return "\n".join(lines)
    lines.append(f"enqueued: {len(messages)}")
    lines += [f"  {_line(message, marked=wanted.fits(message))}" for message in messages[:_SHOWN]]
    if len(messages) > _SHOWN:
        lines.append(f"  … and {len(messages) - _SHOWN} more")
    if not found:
        closest = min(messages, key=lambda message: _distance(wanted, message))
        lines.append(f"closest is outbox_id {closest.outbox_id}:")
        for name, (expected, actual) in wanted.differences(closest).items():
            lines += _difference(name, expected, actual)
    return "\n".join(lines)


def _line(message: EnqueuedMessage, *, marked: bool) -> str:
    mark = "*" if marked else " "
    return (
        f"{mark} {message.outbox_id}  {message.event_type}  {message.message_key} -> "
        f"{message.destination}"
    )


def _distance(wanted: Expectation, message: EnqueuedMessage) -> float:
    """Count what differs; payloads and keys that are nearly right count less."""
    total = 0.0
    for expected, actual in wanted.differences(message).values():
        total += 2 - difflib.SequenceMatcher(None, _text(expected), _text(actual)).ratio()
    return total


def _difference(name: str, expected: Any, actual: Any) -> list[str]:
    before, after = _text(expected), _text(actual)
    if name != _PAYLOAD or not isinstance(actual, (dict, list)):
        return [f"  {name}: expected {expected!r}, enqueued {actual!r}"]
    compared = difflib.ndiff(before.splitlines(), after.splitlines())
    lines = [line for line in compared if not line.startswith("?")]
    return [f"  {name} (- expected, + enqueued):", *(f"    {line}" for line in lines)]


def _text(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, default=repr)
    return str(value)


def _same_payload(wanted: Any, message: EnqueuedMessage) -> bool:
    return bool(wanted == message.payload) or bool(_as_json(wanted) == message.payload)


def _as_json(wanted: Any) -> Any:
    """Return what the consumer would read; as given, where it holds what JSON cannot carry."""
    from bridge.payload import encode_json  # noqa: PLC0415 - orjson, when an assertion needs it

    if wanted is None or isinstance(wanted, (str, bytes)):
        return wanted
    try:
        return json.loads(encode_json(wanted))
    except InvalidMessageError:
        return wanted
