"""The shop's SQL files."""

from __future__ import annotations

from functools import cache
from importlib import resources

from bridge.database.template import render_query


@cache
def statement(name: str) -> bytes:
    """Return the statement in `queries/<name>.sql`, its variables as psycopg's parameters."""
    source = resources.files("bridge.demo.shop").joinpath("queries", f"{name}.sql")
    return render_query(source.read_text(encoding="utf-8"), "public")
