"""What must hold between settings, and how a refused one is reported (pure but for pydantic)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.console_checks import console_contradictions
from bridge.kafka.properties import (
    DEFAULT_MESSAGE_TIMEOUT_MS,
    canonical,
    is_secret,
    property_text,
    refusal,
)
from bridge.setting_sources import DEFAULT_ORIGIN, Layer, SettingPath, setting_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic import ValidationError

    from bridge.settings import Settings

_SHORTEST_AUDIT = 30 * 86400.0
"""The schema's own limit: a shorter time would let a mistake wipe what an audit is for."""
_SECRET_FIELDS = frozenset({"url", "direct_url", "database_url", "read_url", "secret", "users"})


def is_secret_setting(path: SettingPath) -> bool:
    """Tell whether the value of a setting must never be shown as it is."""
    return path[-1] in _SECRET_FIELDS or (path[0] == "kafka" and is_secret(path[-1]))


def describe_invalid(error: ValidationError, layer: Layer) -> str:
    """Write a line for each value that pydantic refused: setting, value, origin, what is wanted."""
    lines: list[str] = []
    for problem in error.errors(include_url=False, include_context=False):
        place = tuple(str(part) for part in problem["loc"])
        if problem["type"] == "missing":
            where = layer.origins.get(place[:1], DEFAULT_ORIGIN).where
            lines.append(f"{setting_name(place)} is missing in {where}")
            continue
        path = _written_path(place, layer)
        value = "***" if is_secret_setting(path) else repr(problem["input"])
        where = layer.origins.get(path, layer.origins.get(path[:1], DEFAULT_ORIGIN)).where
        wanted = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
        lines.append(f"{setting_name(path)} = {value} ({where}): {wanted}")
    return "\n".join(dict.fromkeys(lines))


def _written_path(path: SettingPath, layer: Layer) -> SettingPath:
    """Give the path as a person wrote it, without pydantic's inner steps."""
    if path[:2] == ("kafka", "properties"):
        return ("kafka", *path[2:3])
    while len(path) > 1 and path not in layer.origins:
        path = path[:-1]
    return path


def contradictions(settings: Settings) -> list[str]:
    """Write a line for each rule between settings that does not hold, with the way out."""
    return [
        *_times(settings),
        *_sizes(settings),
        *_retention(settings),
        *_routes(settings),
        *_kafka(settings),
        *console_contradictions(settings),
    ]


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


class _Shown:
    """Writes a setting as `relay.lease = 120 (the default)`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def __call__(self, section: str, name: str) -> str:
        value: Any = getattr(getattr(self._settings, section), name)
        where = self._settings.origin(section, name).where
        return f"{section}.{name} = {_number(value)} ({where})"


def _times(settings: Settings) -> Iterator[str]:
    relay, shown = settings.relay, _Shown(settings)
    if relay.heartbeat_interval > relay.lease / 3:
        yield (
            f"{shown('relay', 'heartbeat_interval')} must be at most a third of "
            f"{shown('relay', 'lease')}, so that two lost heartbeats cost no lease: "
            f"use {relay.lease / 3:.3g} or less, or a longer lease"
        )
    if relay.lease_margin >= relay.lease:
        yield (
            f"{shown('relay', 'lease_margin')} must be shorter than {shown('relay', 'lease')}: "
            "it is the part of the lease in which nothing is in flight any more"
        )
    if relay.lease >= relay.stuck_timeout:
        yield (
            f"{shown('relay', 'stuck_timeout')} must be longer than {shown('relay', 'lease')}: "
            "it is for relays that hang while their heartbeat goes on"
        )
    if settings.retry.base > settings.retry.cap:
        yield (
            f"{shown('retry', 'base')} must not be more than {shown('retry', 'cap')}: "
            "the cap is the longest wait"
        )
    if relay.busy_poll > relay.idle_poll:
        yield (
            f"{shown('relay', 'busy_poll')} must not be more than {shown('relay', 'idle_poll')}: "
            "a busy relay looks more often than an idle one"
        )
    # A tenth of the lease is left for claimed rows to wait before they are handed to Kafka.
    limit_ms = (0.9 * relay.lease - relay.lease_margin) * 1000
    if relay.lease_margin < relay.lease and settings.kafka.message_timeout_ms >= limit_ms:
        name = next(
            (n for n in settings.kafka.properties if canonical(n) == "message.timeout.ms"),
            "message.timeout.ms",
        )
        written, where = setting_name(("kafka", name)), settings.origin("kafka", name).where
        value = settings.kafka.properties.get(name, DEFAULT_MESSAGE_TIMEOUT_MS)
        if not str(value).isdecimal():
            yield f"{written} = {value!r} ({where}) must be a whole number of milliseconds"
            return
        note = ", which means without end," if int(value) == 0 else ""
        yield (
            f"{written} = {value} ({where}){note} must be less than "
            f"(0.9 * relay.lease - relay.lease_margin) * 1000 = {_number(limit_ms)}, with "
            f"{shown('relay', 'lease')}: a frozen relay must not send rows that another one has "
            "taken over; use less, or a longer lease"
        )


def _sizes(settings: Settings) -> Iterator[str]:
    shown = _Shown(settings)
    for smaller, larger in (
        ("batch_rows", "max_inflight_rows"),
        ("inline_payload_bytes", "max_inflight_bytes"),
    ):
        if getattr(settings.relay, smaller) > getattr(settings.relay, larger):
            yield (
                f"{shown('relay', smaller)} must not be more than {shown('relay', larger)}: "
                f"a batch must fit into what may be in flight; lower {smaller} or raise {larger}"
            )


def _retention(settings: Settings) -> Iterator[str]:
    retention, shown = settings.retention, _Shown(settings)
    if retention.audit is not None and retention.audit < _SHORTEST_AUDIT:
        yield (
            f'{shown("retention", "audit")} must be at least 30 days: use "30d" or more, or "keep"'
        )
    if retention.archive == "file" and retention.archive_file is None:
        where = settings.origin("retention", "archive").where
        yield (
            f'retention.archive = "file" ({where}) needs retention.archive_file: '
            "name the file that pruned rows are appended to"
        )
    if retention.archive != "file" and retention.archive_file is not None:
        where = settings.origin("retention", "archive_file").where
        yield (
            f"retention.archive_file is set ({where}) and would not be used: "
            'set retention.archive = "file", or remove it'
        )


def _routes(settings: Settings) -> Iterator[str]:
    first: dict[str, int] = {}
    for index, route in enumerate(settings.routes):
        where = settings.origin("routes").where
        if route.destination in first:
            yield (
                f"routes[{index}].destination = {route.destination!r} ({where}) stands already in "
                f"routes[{first[route.destination]}] and would never be used: remove one of them"
            )
        first.setdefault(route.destination, index)


def _kafka(settings: Settings) -> Iterator[str]:
    kafka = settings.kafka
    names: dict[str, str] = {}
    for name, value in kafka.properties.items():
        where = settings.origin("kafka", name).where
        written = setting_name(("kafka", name))
        if (other := names.setdefault(canonical(name), name)) != name:
            yield f'{written} ({where}) is another name of "{other}": remove one of them'
        refused = refusal(name, value)
        if refused is None or (refused.forcible and name in kafka.allow_unsafe):
            continue
        shown = "***" if is_secret(name) else property_text(value)
        way_out = (
            f'; or, knowing that, add "{name}" to kafka.allow_unsafe' if refused.forcible else ""
        )
        yield (
            f"{written} = {shown} ({where}) is refused: {refused.reason}; {refused.fix}{way_out}"
        )
    for name in kafka.allow_unsafe:
        if name not in kafka.properties:
            where = settings.origin("kafka", "allow_unsafe").where
            yield (
                f"kafka.allow_unsafe names {name!r} ({where}), which is not set under [kafka]: "
                "remove it, so that it does not force a later value unseen"
            )
