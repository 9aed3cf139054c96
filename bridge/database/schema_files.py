"""The SQL files of `schemas/postgres`: found in a wheel, in editable mode and in the checkout."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bridge.database.migration_sets import OUTBOX, MigrationSet
from bridge.errors import SchemaError

Direction = Literal["up", "down"]

_PACKAGE = Path(__file__).resolve().parent.parent
_CANDIDATES = (
    _PACKAGE / "_schemas" / "postgres",  # a wheel carries the files inside the package
    _PACKAGE.parent / "schemas" / "postgres",  # the checkout, also in editable mode
)
_FILE_NAME = re.compile(r"(?P<version>[0-9]{4})_(?P<name>[a-z0-9_]+)\.(?P<direction>up|down)\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered step of the schema: the text of its up and its down file.

    `checksum` is the SHA-256 of the up file, in hexadecimal; line ends do not count, so that a
    checkout on another system agrees.
    """

    version: int
    name: str
    up: str
    down: str
    checksum: str

    def file_name(self, direction: Direction) -> str:
        """Return the file's name, for messages."""
        return f"{self.version:04d}_{self.name}.{direction}.sql"

    def text(self, direction: Direction) -> str:
        """Return the file's text, psql variables not yet filled in."""
        return self.up if direction == "up" else self.down


def schema_directory() -> Path:
    """Return the folder that holds `migrations/`, `ledger.sql` and `roles.sql`.

    Raises SchemaError where the installation lacks it.
    """
    for candidate in _CANDIDATES:
        if (candidate / "migrations").is_dir():
            return candidate
    looked = " and ".join(str(candidate) for candidate in _CANDIDATES)
    raise SchemaError(
        f"the migrations are missing (looked in {looked}); install outbox-bridge anew"
    )


def read_schema_file(name: str, chosen: MigrationSet = OUTBOX) -> str:
    """Return the text of a file beside a set's `migrations/`, such as `roles.sql`."""
    return _read(schema_directory() / chosen.folder / name)


def read_migrations(
    directory: Path | None = None, chosen: MigrationSet = OUTBOX
) -> tuple[Migration, ...]:
    """Read every migration of a set, in order of its number; default: those of this version.

    Raises SchemaError for a number that is missing or given twice, or a half of a pair.
    """
    folder = directory or schema_directory() / chosen.folder / "migrations"
    texts: dict[int, dict[str, tuple[str, str]]] = {}
    for path in sorted(folder.glob("*.sql")):
        match = _FILE_NAME.fullmatch(path.name)
        if match is None:
            raise SchemaError(f"{path} is not named NNNN_name.up.sql or NNNN_name.down.sql")
        halves = texts.setdefault(int(match["version"]), {})
        if match["direction"] in halves:
            raise SchemaError(f"two migrations are numbered {match['version']} in {folder}")
        halves[match["direction"]] = (match["name"], _read(path))
    migrations = []
    for expected, (version, halves) in enumerate(sorted(texts.items()), start=1):
        if version != expected:
            raise SchemaError(f"migration {expected:04d} is missing in {folder}")
        if len(halves) != len(("up", "down")) or halves["up"][0] != halves["down"][0]:
            raise SchemaError(f"migration {version:04d} in {folder} lacks its up or its down file")
        name, up = halves["up"]
        migrations.append(Migration(version, name, up, halves["down"][1], _checksum(up)))
    if not migrations:
        raise SchemaError(f"there are no migrations in {folder}")
    return tuple(migrations)


def _read(path: Path) -> str:
    # Universal newlines: read_text turns \r\n into \n.
    return path.read_text(encoding="utf-8")


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
