"""Options that several commands share, and the settings they lead to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from bridge.settings import Settings

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Settings file (else OUTBOX_BRIDGE_CONFIG, else ./outbox-bridge.toml).",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON to stdout.")]
DatabaseUrlOption = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        metavar="URL",
        help="Database (else OUTBOX_BRIDGE_DATABASE_URL, else libpq's PG* variables).",
    ),
]
SchemaOption = Annotated[
    str | None,
    typer.Option("--schema", metavar="NAME", help="Schema of the outbox (default: public)."),
]


def settings_from(
    config: Path | None = None,
    *,
    database_url: str | None = None,
    schema: str | None = None,
    overrides: dict[str, dict[str, Any]] | None = None,
) -> Settings:
    """Load the settings with what the shared options say on top.

    `overrides` are further values of the command line by section, None where not given.
    """
    # pydantic takes longer to import than `--help` may take in all.
    from bridge.settings import load_settings  # noqa: PLC0415 - see above

    given = {section: dict(body) for section, body in (overrides or {}).items()}
    given["database"] = {"url": database_url, "schema": schema, **given.get("database", {})}
    return load_settings(config, given)
