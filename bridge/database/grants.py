"""What roles.sql grants, read off its statements (pure): the file stays the one description."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from bridge.database.sql_script import split_script
from bridge.database.template import render_script

if TYPE_CHECKING:
    from collections.abc import Iterator

_GRANT = re.compile(
    r"grant\s+(?P<rights>.+?)\s+on\s+(?P<kind>table|function|sequence|schema)\s+(?P<objects>.+?)"
    r"\s+to\s+(?P<roles>[a-z_,\s]+)$",
    re.IGNORECASE | re.DOTALL,
)
_COMMENT = re.compile(r"--[^\n]*")
_COMMA = re.compile(r",(?![^(]*\))")
"""A comma that is not within parentheses."""


class Grant(NamedTuple):
    """One right of one role. `column` is empty where the right is on the whole object."""

    role: str
    kind: str
    object: str
    column: str
    privilege: str


def expected_grants(script: str, schema: str) -> list[Grant]:
    """Return every right that roles.sql, not rendered yet, grants on an object of the schema."""
    found = []
    for statement in split_script(script):
        match = _GRANT.match(_COMMENT.sub("", statement.text).strip().rstrip(";").strip())
        if match:
            # Rendered last: the name of a schema may hold commas.
            found += [
                right._replace(object=render_script(right.object, schema))
                for right in _rights(match)
            ]
    return found


def _rights(match: re.Match[str]) -> Iterator[Grant]:
    kind = match["kind"].lower()
    for role in _parts(match["roles"]):
        for name in _parts(match["objects"]):
            for right in _parts(match["rights"]):
                privilege, _, columns = right.partition("(")
                for column in _parts(columns.rstrip(") \n")) or [""]:
                    yield Grant(role, kind, name, column, privilege.strip().upper())


def _parts(text: str) -> list[str]:
    return [part for part in (" ".join(one.split()) for one in _COMMA.split(text)) if part]
