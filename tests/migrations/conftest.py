from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, Protocol

import psycopg
import pytest

from bridge.database.schema_files import schema_directory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def empty(empty_database_url: str) -> Iterator[Connection]:
    """A connection to a database without anything of ours."""
    with psycopg.connect(empty_database_url, autocommit=True) as conn:
        yield conn


@pytest.fixture
def migrated(database_url: str) -> Iterator[Connection]:
    """A connection to a database with every migration in `public`."""
    with psycopg.connect(database_url, autocommit=True) as conn:
        yield conn


class AddMigrationFunction(Protocol):
    def __call__(self, up: str, down: str = "select 1;", name: str = "extra") -> Path: ...


@pytest.fixture
def add_migration(tmp_path: Path) -> AddMigrationFunction:
    """Copy the migrations into a folder of the test's and add one more; return the folder."""
    folder = tmp_path / "migrations"
    shutil.copytree(schema_directory() / "migrations", folder)

    def add(up: str, down: str = "select 1;", name: str = "extra") -> Path:
        number = len(list(folder.glob("*.up.sql"))) + 1
        (folder / f"{number:04d}_{name}.up.sql").write_text(up)
        (folder / f"{number:04d}_{name}.down.sql").write_text(down)
        return folder

    return add
