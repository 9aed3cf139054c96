"""Where settings come from: command line, environment, file; every name is checked (pure).

A `Layer` holds what one source says, as nested dictionaries in the shape of `Settings`, and
remembers for each value how a person finds it again (a variable's name, a file and its key).
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bridge.errors import ConfigurationError
from bridge.kafka.properties import UNDOTTED

if TYPE_CHECKING:
    from pathlib import Path

PREFIX = "OUTBOX_BRIDGE_"
CONFIG_VARIABLE = "OUTBOX_BRIDGE_CONFIG"

SettingPath = tuple[str, ...]
"""Section and field: `("relay", "lease")`, `("kafka", "linger.ms")`, `("routes", "0", "topic")`."""

Sections = Mapping[str, Iterable[str]]
"""Names of the fields of each section, as written in files; `routes` are those of one route."""

# A Kubernetes service called outbox-bridge… puts such variables into every pod beside it.
_SERVICE_LINK = re.compile(
    r"(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)
_SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://")
_MAX_LISTED = 20
_LISTS = frozenset(
    {"allow_unsafe", "allowed_hosts", "masks", "operators", "trusted_proxies", "users"}
)
"""Fields that are lists: in the environment JSON, or words between commas."""
_KAFKA_UNDERSCORED = {"log.level": "log_level"}


@dataclass(frozen=True, slots=True)
class Origin:
    """Which source a value comes from: `kind` is default, file, env or cli; `where` names it."""

    kind: str
    where: str


DEFAULT_ORIGIN = Origin("default", "the default")


@dataclass(frozen=True, slots=True)
class Layer:
    """What one source says: nested values, and the origin of each."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[SettingPath, Origin] = field(default_factory=dict)


def setting_name(path: SettingPath) -> str:
    """Write a setting as messages do: `relay.lease`, `kafka."linger.ms"`, `routes[0].topic`."""
    name = ""
    for part in path:
        if part.isdigit():
            name += f"[{part}]"
        else:
            name += ("." if name else "") + (f'"{part}"' if "." in part else part)
    return name


def variable_name(path: SettingPath) -> str:
    """Name the environment variable of a setting."""
    return PREFIX + "_".join(path).replace(".", "_").upper()


def read_overrides(overrides: Mapping[str, Any] | None, sections: Sections) -> Layer:
    """Read what the command line says; None stands for an option that was not given."""
    layer = Layer()
    for section, body in (overrides or {}).items():
        if isinstance(body, Mapping):
            body = {name: value for name, value in body.items() if value is not None}  # noqa: PLW2901 - the cleaned body takes its place
        if body is not None:
            _add_section(layer, section, body, sections, Origin("cli", "the command line"))
    return layer


def read_environment(environment: Mapping[str, str], sections: Sections) -> Layer:
    """Read `OUTBOX_BRIDGE_<SECTION>_<FIELD>`; an empty variable counts as not set.

    Raises `ConfigurationError` for a variable that means nothing, with the nearest one that does.
    """
    layer = Layer()
    for variable, text in sorted(environment.items()):
        if not variable.startswith(PREFIX) or variable == CONFIG_VARIABLE:
            continue
        rest = variable.removeprefix(PREFIX)
        path = _path_of_variable(rest, sections)
        if rest.startswith("TEST_") or _is_service_link(rest, text, known=path is not None):
            continue
        if path is None:
            raise _unknown_variable(variable, sections)
        if not text.strip():
            continue
        origin = Origin("env", f"environment variable {variable}")
        if path == ("routes",):
            _add_section(layer, "routes", _json(text, origin), sections, origin)
        else:
            section, name = path
            value: Any = _words(text, origin) if name in _LISTS else text
            layer.values.setdefault(section, {})[name] = value
            layer.origins[path] = origin
    return layer


def _is_service_link(rest: str, text: str, *, known: bool) -> bool:
    """Tell whether Kubernetes has set this variable; one that is a setting, by its value."""
    return _SERVICE_LINK.fullmatch(rest) is not None and (
        not known or _SERVICE_ADDRESS.match(text) is not None
    )


def read_file(path: Path, sections: Sections) -> Layer:
    """Read the TOML file.

    Raises `ConfigurationError` where it cannot be read, is not TOML, or holds an unknown name.
    """
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"settings file {path} cannot be read: {error.strerror}; name another one with "
            f"--config or {CONFIG_VARIABLE}"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"settings file {path} is not valid TOML: {error}") from error
    layer = Layer()
    for section, body in content.items():
        _add_section(layer, section, body, sections, Origin("file", str(path)))
    return layer


def merge(layers: Iterable[Layer]) -> Layer:
    """Make one layer of several, the first winning field by field; `routes` win as a whole."""
    merged = Layer()
    for layer in layers:
        for section, body in layer.values.items():
            if isinstance(body, dict):
                merged.values[section] = body | merged.values.get(section, {})
            else:
                merged.values.setdefault(section, body)
        for path, origin in layer.origins.items():
            if path[0] != "routes" or merged.values["routes"] is layer.values["routes"]:
                merged.origins.setdefault(path, origin)
    return merged


def _add_section(
    layer: Layer, section: str, body: object, sections: Sections, origin: Origin
) -> None:
    if section not in sections:
        raise _unknown(f'section "{section}" in {origin.where}', section, sections)
    if section == "routes":
        if not isinstance(body, list) or not all(isinstance(route, Mapping) for route in body):
            raise ConfigurationError(
                f"routes in {origin.where} must be a list of tables; in the file write one "
                '[[routes]] table for each, in the environment JSON: [{"destination": …}]'
            )
        for index, route in enumerate(body):
            for name in route:
                _check_name(("routes", str(index), str(name)), sections, origin)
                layer.origins["routes", str(index), str(name)] = origin
        layer.values["routes"] = body
        layer.origins["routes",] = origin
        return
    if not isinstance(body, Mapping):
        raise ConfigurationError(
            f'"{section}" in {origin.where} must be a section: write [{section}] with its settings '
            "below it"
        )
    if section == "kafka":
        body = _flat_kafka(body)
        if "bootstrap.servers" in body:
            body["bootstrap_servers"] = body.pop("bootstrap.servers")
    for name, value in body.items():
        _check_name((section, name), sections, origin)
        layer.values.setdefault(section, {})[name] = value
        layer.origins[section, name] = origin


def _flat_kafka(body: Mapping[str, Any]) -> dict[str, Any]:
    """`linger.ms = 5` without quotes is a table in TOML; both spellings mean the property."""
    flat: dict[str, Any] = {}
    for name, value in body.items():
        if name == "properties" and isinstance(value, Mapping):
            flat |= _flat_kafka(value)
        elif isinstance(value, Mapping):
            flat |= {f"{name}.{inner}": leaf for inner, leaf in _flat_kafka(value).items()}
        else:
            flat[name] = value
    return flat


def _check_name(path: SettingPath, sections: Sections, origin: Origin) -> None:
    section, name = path[0], path[-1]
    known = list(sections[section])
    if name in known:
        return
    if section == "kafka":
        if not _misspelt(name, known) and ("." in name or name in UNDOTTED or name.endswith("_cb")):
            return
        known += sorted(UNDOTTED)
    raise _unknown(f"setting {setting_name(path)} in {origin.where}", name, known)


def _misspelt(name: str, known: Iterable[str]) -> bool:
    """Tell whether a property's name is so near to a field's that it must be meant for it."""
    return bool(difflib.get_close_matches(name.replace(".", "_"), list(known), 1, cutoff=0.85))


def _path_of_variable(rest: str, sections: Sections) -> SettingPath | None:
    if rest == "ROUTES":
        return ("routes",)
    head, _, tail = rest.lower().partition("_")
    if head not in sections or head == "routes" or not tail:
        return None
    if tail in sections[head]:
        return head, tail
    dotted = tail.replace("_", ".")
    if head != "kafka" or _misspelt(dotted, sections[head]):
        return None
    name = _KAFKA_UNDERSCORED.get(dotted, dotted)
    return ("kafka", name) if "." in name or name in UNDOTTED else None


def _unknown_variable(variable: str, sections: Sections) -> ConfigurationError:
    # Compared without what all share, so that a short typo is not drowned by the prefix.
    head = variable.removeprefix(PREFIX).lower().partition("_")[0]
    start = f"{PREFIX}{head.upper()}_" if head in sections and head != "routes" else PREFIX
    known = [
        variable_name((section, name)).removeprefix(start)
        for section, fields in sections.items()
        if section != "routes" and (start == PREFIX or section == head)
        for name in fields
    ]
    known += ["ROUTES", "CONFIG"] if start == PREFIX else []
    what = f"environment variable {variable}"
    return _unknown(what, variable.removeprefix(start), known, start)


def _unknown(what: str, name: str, known: Iterable[str], start: str = "") -> ConfigurationError:
    names = sorted(known)
    nearest = difflib.get_close_matches(name, names, 1, cutoff=0.6)
    if nearest:
        return ConfigurationError(f"{what} is unknown; did you mean {start}{nearest[0]}?")
    if len(names) > _MAX_LISTED:
        return ConfigurationError(f"{what} is unknown; `outbox-bridge config show` lists all names")
    listed = ", ".join(f"{start}{known_name}" for known_name in names)
    return ConfigurationError(f"{what} is unknown; known are: {listed}")


def _json(text: str, origin: Origin) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"{origin.where} is not valid JSON: {error}") from error


def _words(text: str, origin: Origin) -> object:
    """Read a list in the environment: JSON, or words between commas."""
    if text.lstrip().startswith("["):
        return _json(text, origin)
    return [word.strip() for word in text.split(",") if word.strip()]
