"""`outbox-bridge config show`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from pydantic import BaseModel, SecretStr

from bridge.cli.options import (
    ConfigOption,
    DatabaseUrlOption,
    JsonOption,
    SchemaOption,
    settings_from,
)
from bridge.cli.output import Output
from bridge.kafka.properties import canonical, is_secret, property_text
from bridge.setting_sources import SettingPath, setting_name, variable_name

if TYPE_CHECKING:
    from bridge.settings import Settings

app = typer.Typer(no_args_is_help=True)

MASK = "***"
_NAMED_SECRET = re.compile(
    r"""(\b\w*(?:password|secret)\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&]+)""", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """One setting as it is in force: `source` is default, file, env or cli; `origin` names it."""

    name: str
    value: Any
    source: str
    origin: str
    variable: str


@app.command()
def show(
    *,
    config: ConfigOption = None,
    database_url: DatabaseUrlOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """Check the settings and show each one's value and where it comes from; secrets are masked.

    The order is: command line, environment, file, default. `[kafka]` also shows what the relay
    gives librdkafka where nothing else is set.

    Examples:
      outbox-bridge config show
      outbox-bridge config show --config /etc/outbox-bridge.toml --json
    """
    settings = settings_from(config, database_url=database_url, schema=schema)
    shown = list(effective(settings))
    output = Output(as_json=json)
    if json:
        output.json({"file": settings.file, "settings": shown})
        return
    output.note(f"settings file: {settings.file or 'none'}")
    output.table(
        ["setting", "value", "source", "environment variable"],
        [[one.name, readable(one.value), one.source, one.variable] for one in shown],
    )


@app.callback()
def _config() -> None:
    """Show the effective settings."""


def effective(settings: Settings) -> Iterator[EffectiveSetting]:
    """Yield every setting, section by section, in the order of the settings' definition."""
    for section in type(settings).model_fields:
        if section == "routes":
            yield from _routes(settings)
            continue
        model: BaseModel = getattr(settings, section)
        for field, info in type(model).model_fields.items():
            if (section, field) == ("kafka", "properties"):
                yield from _properties(settings)
            else:
                mask = partial(_masked_console, field) if section == "console" else _masked
                name = info.alias or field
                yield _setting(settings, (section, name), mask(getattr(model, field)))


def _setting(settings: Settings, path: SettingPath, value: Any) -> EffectiveSetting:
    origin = settings.origin(*path)
    return EffectiveSetting(
        setting_name(path), value, origin.kind, origin.where, variable_name(path)
    )


def _routes(settings: Settings) -> Iterator[EffectiveSetting]:
    origin = settings.origin("routes")
    for index, route in enumerate(settings.routes):
        for field in type(route).model_fields:
            name = setting_name(("routes", str(index), field))
            value = getattr(route, field)
            yield EffectiveSetting(
                name, value, origin.kind, origin.where, variable_name(("routes",))
            )


def _properties(settings: Settings) -> Iterator[EffectiveSetting]:
    from bridge.kafka.producer import DEFAULTS  # noqa: PLC0415 - loads librdkafka

    given = settings.kafka.properties
    known = {canonical(name) for name in given}
    defaults = {name: value for name, value in DEFAULTS.items() if canonical(name) not in known}
    for name, value in sorted((defaults | given).items()):
        shown = MASK if is_secret(name) else value
        yield _setting(settings, ("kafka", name), shown)


def _masked(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return mask_url(value.get_secret_value())
    return value


def _masked_console(field: str, value: Any) -> Any:
    if field == "users":
        return tuple(":".join([*user.get_secret_value().split(":")[:2], MASK]) for user in value)
    return MASK if field == "secret" and value is not None else _masked(value)


def mask_url(url: str) -> str:
    """Hide the passwords of a connection URL or a `key=value` connection string."""
    # Up to the last @: a password with @ or / that is not percent-encoded is hidden as well.
    url = re.sub(r"(?<=//)([^/@?#:]*):.*@", rf"\1:{MASK}@", url)
    return _NAMED_SECRET.sub(rf"\1{MASK}", url)


def readable(value: Any) -> str | int | float | None:
    """Write a setting's value for people; None where it is not set."""
    if isinstance(value, bool):
        return property_text(value)
    if isinstance(value, tuple):
        return ", ".join(str(one) for one in value) or None
    if isinstance(value, Path):
        return str(value)
    return value if isinstance(value, int | float) or value is None else str(value)
