"""What the migrations make, read off their statements, and what of it a database lacks (pure).

The SQL files stay the only description of the schema: `verify` compares them with the catalog.
They keep a plain form for that: one statement for each object, a comment on each column, and
drop and create instead of rename.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from bridge.database.sql_script import split_script

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAME = r'(?:"(?:[^"]|"")*"\.)?(?P<name>\w+)'
_TABLE = r'(?:"(?:[^"]|"")*"\.)?(?P<table>\w+)'
_RULES: tuple[tuple[str, str, re.Pattern[str]], ...] = tuple(
    (action, kind, re.compile(pattern, re.IGNORECASE | re.DOTALL))
    for action, kind, pattern in (
        ("add", "table", rf"create (?:unlogged )?table (?:if not exists )?{_NAME}"),
        ("add", "view", rf"create (?:or replace )?view {_NAME}"),
        ("add", "column", rf"comment on column {_TABLE}\.(?P<name>\w+) is"),
        (
            "add",
            "trigger",
            rf"create (?:or replace |constraint )?trigger (?P<name>\w+)\s.*?\son {_TABLE}",
        ),
        ("add", "index", rf"create (?:unique )?index (?P<name>\w+)\s+on {_TABLE}"),
        ("add", "function", rf"create (?:or replace )?function {_NAME}\s*\("),
        ("add", "constraint", rf"alter table {_TABLE}\s+add constraint (?P<name>\w+)"),
        ("drop", "table", rf"drop table {_NAME}"),
        ("drop", "view", rf"drop view {_NAME}"),
        ("drop", "column", rf"alter table {_TABLE}\s+drop column (?P<name>\w+)"),
        ("drop", "trigger", rf"drop trigger (?P<name>\w+) on {_TABLE}"),
        ("drop", "index", rf"drop index {_NAME}"),
        ("drop", "function", rf"drop function {_NAME}"),
        ("drop", "constraint", rf"alter table {_TABLE}\s+drop constraint (?P<name>\w+)"),
    )
)
_INNER_CONSTRAINT = re.compile(r"^\s*constraint (?P<name>\w+)\s", re.IGNORECASE | re.MULTILINE)
_BODY = re.compile(r"\$\$(?P<body>.*)\$\$", re.DOTALL)


class SchemaObject(NamedTuple):
    """A table, view, column, trigger, index, constraint or function; parts as `table.part`."""

    kind: str
    name: str


def expected_objects(scripts: Iterable[str]) -> dict[SchemaObject, str]:
    """Return what the rendered up scripts leave behind; the value is a function's body, else ''."""
    objects: dict[SchemaObject, str] = {}
    for script in scripts:
        for statement in split_script(script):
            _apply(objects, statement.text)
    return objects


def _apply(objects: dict[SchemaObject, str], statement: str) -> None:
    for action, kind, pattern in _RULES:
        match = pattern.match(statement)
        if match is None:
            continue
        parts = match.groupdict()
        name = f"{parts['table']}.{parts['name']}" if "table" in parts else parts["name"]
        item = SchemaObject(kind, name)
        if action == "drop":
            _drop(objects, item)
            return
        body = _BODY.search(statement) if kind == "function" else None
        objects[item] = body["body"] if body else ""
        if kind == "table":
            for inner in _INNER_CONSTRAINT.finditer(statement):
                objects[SchemaObject("constraint", f"{name}.{inner['name']}")] = ""
        return


def _drop(objects: dict[SchemaObject, str], item: SchemaObject) -> None:
    objects.pop(item, None)
    for other in list(objects):
        with_its_table = item.kind in {"table", "view"} and other.name.startswith(f"{item.name}.")
        # An index is dropped by its own name, without the table's.
        by_name = item.kind == other.kind == "index" and other.name.endswith(f".{item.name}")
        if with_its_table or by_name:
            del objects[other]


def find_drift(
    expected: dict[SchemaObject, str],
    actual: Iterable[tuple[str, str, str]],
    *,
    compare_bodies: bool,
) -> list[str]:
    """Return what is missing, switched off or altered, one sentence each, in a stable order.

    `actual` is the result of `list_schema_objects.sql`. Objects that no migration made are left
    alone. `compare_bodies` is off beside a newer schema, which may have replaced a function.
    """
    found: dict[SchemaObject, list[str]] = {}
    for kind, name, detail in actual:
        found.setdefault(SchemaObject(kind, name), []).append(detail)
    drift = []
    for item, body in sorted(expected.items()):
        details = found.get(item)
        if details is None:
            drift.append(f"{item.kind} {item.name} is missing")
        elif item.kind == "function":
            if compare_bodies and body not in details:
                drift.append(f"function {item.name} was altered")
        else:
            drift += [f"{item.kind} {item.name} is {detail}" for detail in details if detail]
    return drift
