"""`migrate sql`: the same schema through any other tool."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest

from bridge.database.migrations import Migrator, script
from bridge.database.sql_script import split_script
from bridge.errors import SchemaError
from tests.migrations.test_up_down import LATEST, everything

Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.mark.parametrize("schema", ["public", "My Schema"])
def test_plain_sql_makes_what_up_makes(empty: Connection, schema: str) -> None:
    before = everything(empty)
    with empty.transaction():
        empty.execute(script(schema, 0, LATEST).encode())
    migrator = Migrator(empty, schema)
    migrator.verify()
    assert [state.state for state in migrator.status()] == ["applied"] * LATEST
    by_script = everything(empty)
    migrator.down(0)
    migrator.up()
    assert everything(empty) == by_script
    with empty.transaction():
        empty.execute(script(schema, LATEST, 0, "down").encode())
    assert [row for row in everything(empty) if row[0] != "schema"] == [
        row for row in before if row[0] != "schema"
    ]


def test_plain_sql_goes_step_by_step_and_meets_up(empty: Connection) -> None:
    empty.execute(script("public", 0, 1).encode())
    assert [m.version for m in Migrator(empty).up()] == list(range(2, LATEST + 1))
    empty.execute(script("public", LATEST, 1, "down").encode())
    assert [state.state for state in Migrator(empty).status()] == [
        "applied",
        *["pending"] * (LATEST - 1),
    ]
    empty.execute(script("public", 1, LATEST).encode())
    Migrator(empty).verify()


@pytest.mark.parametrize("schema", ["public", "My Schema"])
def test_plain_sql_suits_tools_with_placeholders(schema: str) -> None:
    """SQLAlchemy's text() would take `:name` for a parameter; psql would fill `:'name'`."""
    for direction, text in (
        ("up", script(schema, 0, LATEST)),
        ("down", script(schema, LATEST, 0, "down")),
    ):
        assert re.search(r"(?<![:\w\\]):(\w+)(?!:)", text) is None, direction
        assert re.search(r""":['"]""", text) is None, direction
        assert not re.search(r"(?im)^\s*(begin|commit|rollback)\s*;", text), direction


@pytest.mark.parametrize(
    ("start", "end", "direction"),
    [
        (1, 1, "up"),
        (2, 1, "up"),
        (0, LATEST + 1, "up"),
        (-1, 1, "up"),
        (1, 2, "down"),
        (0, 0, "down"),
    ],
)
def test_impossible_ways_are_refused(start: int, end: int, direction: Any) -> None:
    with pytest.raises(SchemaError, match="there is no way"):
        script("public", start, end, direction)


def test_script_is_cut_at_its_semicolons_only() -> None:
    text = (
        "-- a; comment\n"
        "select 'a;''b', \"c;d\", E'\\';' /* x; y */;\n"
        "\n"
        "do $body$ begin perform $$;$$; end $body$;\n"
        ";\n"
        "/* last; */ select 2\n"
        "-- end"
    )
    assert [(s.line, s.text.split()[0]) for s in split_script(text)] == [
        (2, "select"),
        (4, "do"),
        (6, "select"),
    ]
    assert split_script(text)[1].text == "do $body$ begin perform $$;$$; end $body$"
    assert split_script("-- nothing\n") == []
