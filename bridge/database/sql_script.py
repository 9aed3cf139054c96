"""Splits an SQL script into statements, so that an error can name its statement and line (pure)."""

from __future__ import annotations

import re
from typing import NamedTuple

_TOKEN = re.compile(
    r"""
      --[^\n]*
    | /\*.*?\*/
    | \b[eE]'(?:\\.|''|[^'\\])*'
    | '(?:''|[^'])*'
    | "(?:""|[^"])*"
    | \$(?P<tag>[A-Za-z_][A-Za-z0-9_]*)?\$.*?\$(?(tag)(?P=tag))\$
    | (?P<end>;)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT = re.compile(r"(?:\s+|--[^\n]*(?:\n|$)|/\*.*?\*/)*", re.DOTALL)


class Statement(NamedTuple):
    """One statement; `line` is the line of the script on which it starts, from 1."""

    text: str
    line: int


def split_script(script: str) -> list[Statement]:
    """Cut a script at its semicolons; comments before a statement are left out.

    Knows strings, quoted names, dollar quotes and comments. Bodies of the kind `begin atomic … end`
    are not known: write them in dollar quotes.
    """
    statements: list[Statement] = []
    start = 0
    for token in _TOKEN.finditer(script):
        if token["end"] is None:
            continue
        _append(statements, script, start, token.start())
        start = token.end()
    _append(statements, script, start, len(script))
    return statements


def _append(statements: list[Statement], script: str, start: int, end: int) -> None:
    comment = _COMMENT.match(script, start, end)
    first = comment.end() if comment else start
    text = script[first:end].rstrip()
    if text:
        statements.append(Statement(text, script.count("\n", 0, first) + 1))
