"""The statements of enqueueing for drivers with numbered parameters (pure)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_PLACEHOLDER = re.compile(r"%\((?P<name>[a-z_]+)\)s(?P<json>::pg_catalog\.jsonb?\b)?|%%")


class Numbered(NamedTuple):
    """`names` are the parameters in the order of their numbers: `names[0]` is `$1`."""

    text: str
    names: tuple[str, ...]


@lru_cache(maxsize=256)
def numbered(statement: bytes) -> Numbered:
    """Turn psycopg's `%(name)s` into `$1`, each name one number, and `%%` into `%`.

    JSON goes out as text: a codec for json or jsonb that the application has set for its own
    values would encode it a second time.
    """
    names: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        name = match["name"]
        if name is None:
            return "%"
        place = f"${names.setdefault(name, len(names) + 1)}"
        return place if match["json"] is None else f"{place}::pg_catalog.text{match['json']}"

    text = _PLACEHOLDER.sub(number, statement.decode())
    return Numbered(text, tuple(names))
