"""The statements of `queries/`, one a file, rendered for a schema."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources

from bridge.database.template import render_query


@lru_cache(maxsize=256)
def load(name: str, schema: str) -> bytes:
    """Return `queries/<name>.sql` as a psycopg query with `%(parameter)s` placeholders.

    Raises FileNotFoundError for a name without a file: a mistake in the code, not of a user.
    """
    source = resources.files("bridge.database").joinpath("queries", f"{name}.sql")
    return render_query(source.read_text(encoding="utf-8"), schema)
