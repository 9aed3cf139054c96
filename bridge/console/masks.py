"""Takes out of payloads and headers what must not be shown (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

HIDDEN = "••• masked"
_HEADER = "header:"
_INDENT = orjson.OPT_INDENT_2


@dataclass(frozen=True, slots=True)
class MaskedText:
    """What is shown of a payload; `why_not` where nothing is. `masked` counts the fields hidden."""

    text: str | None
    masked: int = 0
    why_not: str | None = None


class Masks:
    """The rules of `console.masks`.

    A rule is a path of steps between dots, each a shell-style pattern; `*` is one step, `**` any
    number. Items of a list are steps of their own, by number. `header:NAME` hides a header. Case
    does not matter.
    """

    def __init__(self, rules: Iterable[str]) -> None:
        given = [rule.strip() for rule in rules if rule.strip()]
        self._headers = [
            rule.removeprefix(_HEADER).lower() for rule in given if rule.startswith(_HEADER)
        ]
        self._paths = [tuple(rule.lower().split(".")) for rule in given if _HEADER not in rule]

    @property
    def are_set(self) -> bool:
        """Tell whether there is any rule for payloads."""
        return bool(self._paths)

    def headers(self, headers: Mapping[str, Any]) -> dict[str, str]:
        """Return headers as text, hidden ones as a mark."""
        return {
            name: HIDDEN
            if any(fnmatchcase(name.lower(), rule) for rule in self._headers)
            else str(value)
            for name, value in headers.items()
        }

    def payload(self, text: str | None, *, is_whole: bool) -> MaskedText:
        """Return a JSON payload laid out for people, masked.

        Where rules exist, what is not whole or not JSON is not shown: nobody knows what is in it.
        """
        if text is None:
            return MaskedText(None)
        document: Any = None
        is_json = False
        if is_whole:
            try:
                document = orjson.loads(text)
                is_json = True
            except orjson.JSONDecodeError:
                is_json = False
        if not is_json:
            if self._paths:
                return MaskedText(
                    None, why_not="not shown: fields are masked, and this is too large or no JSON"
                )
            return MaskedText(text)
        masked = self._hide(document, ())
        # Without a mask the numbers stay as they were written; a parser would round large ones.
        shown = orjson.dumps(document, option=_INDENT).decode() if masked else _laid_out(text)
        return MaskedText(shown, masked)

    def document(self, value: Any) -> Any:
        """Mask a JSON value in place, wherever in it a payload may stand, and return it."""
        self._hide(value, ())
        for part in _parts(value):
            self._hide(part, ())
        return value

    def _hide(self, value: Any, path: tuple[str, ...]) -> int:
        if not self._paths:
            return 0
        hidden = 0
        if isinstance(value, dict):
            items: Iterable[tuple[Any, Any]] = list(value.items())
        elif isinstance(value, list):
            items = list(enumerate(value))
        else:
            return 0
        for name, inner in items:
            here = (*path, str(name).lower())
            if any(_matches(here, rule) for rule in self._paths):
                value[name] = HIDDEN
                hidden += 1
            else:
                hidden += self._hide(inner, here)
        return hidden


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        for inner in value.values():
            yield inner
            yield from _parts(inner)


def _matches(path: tuple[str, ...], rule: tuple[str, ...]) -> bool:
    if not rule:
        return not path
    if rule[0] == "**":
        return any(_matches(path[start:], rule[1:]) for start in range(len(path) + 1))
    return bool(path) and fnmatchcase(path[0], rule[0]) and _matches(path[1:], rule[1:])


def _laid_out(text: str) -> str:
    """Break a valid JSON text into indented lines, touching no token."""
    out: list[str] = []
    depth = 0
    position = 0
    while position < len(text):
        char = text[position]
        if char == '"':
            end = position + 1
            while text[end] != '"':
                end += 2 if text[end] == "\\" else 1
            out.append(text[position : end + 1])
            position = end + 1
            continue
        if char in "{[":
            closing = position + 1
            while text[closing].isspace():
                closing += 1
            if text[closing] in "}]":
                out.append(char + text[closing])
                position = closing + 1
                continue
            depth += 1
            out.append(char + "\n" + "  " * depth)
        elif char in "}]":
            depth -= 1
            out.append("\n" + "  " * depth + char)
        elif char == ",":
            out.append(",\n" + "  " * depth)
        elif char == ":":
            out.append(": ")
        elif not char.isspace():
            out.append(char)
        position += 1
    return "".join(out)
