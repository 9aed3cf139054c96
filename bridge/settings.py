"""Every setting, its default and its limits; read once at start and frozen.

Precedence: command line, environment (`OUTBOX_BRIDGE_<SECTION>_<FIELD>`), file (`--config`, else
`OUTBOX_BRIDGE_CONFIG`, else `./outbox-bridge.toml` where it exists), defaults. This is the only
module that looks at the environment.
"""

from __future__ import annotations

import math
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from bridge.errors import ConfigurationError
from bridge.kafka.properties import (
    DEFAULT_MESSAGE_TIMEOUT_MS,
    Property,
    canonical,
    is_secret,
)
from bridge.routing import KeyChoice, OnFailure, Router, Rule, topic_problem
from bridge.setting_checks import contradictions, describe_invalid
from bridge.setting_sources import (
    CONFIG_VARIABLE,
    DEFAULT_ORIGIN,
    PREFIX,
    Layer,
    Origin,
    SettingPath,
    merge,
    read_environment,
    read_file,
    read_overrides,
)

DEFAULT_FILE = Path("outbox-bridge.toml")

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(ms|s|m|h|d)")
_MAX_IDENTIFIER = 63
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def _seconds(value: object) -> object:
    """Turn `"90s"`, `"5m"`, `"250ms"` into seconds; everything else is left to pydantic."""
    if isinstance(value, bool):
        raise ValueError('must be a number of seconds or a text such as "30s" or "5m"')  # noqa: TRY004 - pydantic collects ValueError
    if isinstance(value, str) and (match := _DURATION.fullmatch(value.strip())):
        return float(match[1]) * _UNIT_SECONDS[match[2]]
    return value


def _age(value: object) -> object:
    """Read `"keep"` as: for ever, everything else as a time span."""
    return None if value == "keep" else _seconds(value)


def _not_empty(value: object) -> object:
    """Read an empty text as: not set."""
    return None if value == "" else value


def _identifier(name: str) -> str:
    """Check a PostgreSQL identifier, which ends silently after 63 bytes."""
    if not 0 < len(name.encode()) <= _MAX_IDENTIFIER or "\0" in name:
        raise ValueError(f"must be 1 to {_MAX_IDENTIFIER} bytes without NUL")
    return name


def _topic(name: str) -> str:
    if problem := topic_problem(name):
        raise ValueError(problem)
    return name


def _property(value: object) -> object:
    if not isinstance(value, str | int | float):
        raise ValueError("must be text, a number, or true or false")  # noqa: TRY004 - pydantic collects ValueError
    return value


Seconds = Annotated[
    float, BeforeValidator(_seconds), Field(gt=0, le=366 * 86400, allow_inf_nan=False)
]
Age = Annotated[
    Annotated[float, Field(gt=0, le=100 * 366 * 86400, allow_inf_nan=False)] | None,
    BeforeValidator(_age),
]
Rows = Annotated[int, Field(ge=1, le=1_000_000)]
Url = Annotated[SecretStr | None, BeforeValidator(_not_empty)]


class _Section(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, validate_by_name=True
    )


class DatabaseSettings(_Section):
    """The database that holds the outbox. Without a URL, libpq's `PG*` variables apply."""

    url: Url = None
    direct_url: Url = None
    """Leads past a transaction pooler; for heartbeat and LISTEN."""
    schema_name: Annotated[str, AfterValidator(_identifier), Field(alias="schema")] = "public"


class KafkaSettings(_Section):
    """The brokers, and librdkafka properties by their own names."""

    bootstrap_servers: str = ""
    allow_unsafe: tuple[str, ...] = ()
    """Properties that are used although they would break a promise."""
    properties: dict[str, Annotated[Property, BeforeValidator(_property)]] = Field(
        default_factory=dict
    )

    @model_validator(mode="before")
    @classmethod
    def _gather_properties(cls, data: object) -> object:
        """Every key of `[kafka]` that is no field is a property."""
        if not isinstance(data, dict):
            return data
        given = dict(data.get("properties") or {})
        rest = {name: value for name, value in data.items() if name not in cls.model_fields}
        fields = {name: value for name, value in data.items() if name in cls.model_fields}
        return fields | {"properties": given | rest}

    def __repr_args__(self) -> Any:
        shown = {n: "***" if is_secret(n) else v for n, v in self.properties.items()}
        return [
            ("bootstrap_servers", self.bootstrap_servers),
            ("allow_unsafe", self.allow_unsafe),
            ("properties", shown),
        ]

    @property
    def message_timeout_ms(self) -> float:
        """The effective `message.timeout.ms`; infinite where it is 0, or not a number at all."""
        for name, value in self.properties.items():
            if canonical(name) == "message.timeout.ms":
                return (
                    float(int(text) or math.inf) if (text := str(value)).isdecimal() else math.inf
                )
        return float(DEFAULT_MESSAGE_TIMEOUT_MS)

    def require_bootstrap_servers(self) -> str:
        """Return the brokers. Raises `ConfigurationError` where none are set."""
        if not self.bootstrap_servers:
            raise ConfigurationError(
                "kafka.bootstrap_servers is not set; set "
                "OUTBOX_BRIDGE_KAFKA_BOOTSTRAP_SERVERS=host:9092 or bootstrap_servers under "
                "[kafka] in the settings file (`outbox-bridge local up` starts a local broker)"
            )
        return self.bootstrap_servers


def _default_name() -> str:
    return f"{socket.gethostname()[:80]}-{os.getpid()}"


class RelaySettings(_Section):
    """How a relay claims, publishes and settles. Times are seconds."""

    name: Annotated[str, Field(min_length=1, max_length=100)] = Field(default_factory=_default_name)
    batch_rows: Annotated[int, Field(ge=1, le=50_000)] = 1000
    max_inflight_rows: Rows = 16_000
    max_inflight_bytes: ByteSize = ByteSize(64 * 1024 * 1024)
    inline_payload_bytes: ByteSize = ByteSize(64 * 1024)
    heartbeat_interval: Seconds = 5.0
    lease: Seconds = 120.0
    lease_margin: Seconds = 10.0
    stuck_timeout: Seconds = 1800.0
    drain_timeout: Seconds = 25.0
    busy_poll: Seconds = 0.002
    busy_window: Seconds = 0.05
    idle_poll: Seconds = 0.02
    sleep: Seconds = 1.0
    settle_interval: Seconds = 0.02
    settle_rows: Rows = 4000
    lock_timeout: Seconds = 0.1
    missing_topic: Literal["wait", "fail", "create"] = "wait"
    """What becomes of rows whose topic does not exist (after the broker's own auto-creation)."""
    rescue_interval: Seconds = 1.0
    reconcile_interval: Seconds = 3600.0
    max_claims: Annotated[int, Field(ge=1, le=1000)] = 10
    """Deaths of a relay with a row claimed alone after which the row is FAILED as POISON."""


class RetrySettings(_Section):
    """Backoff of a charged failure: `min(base * 2^n, cap)` seconds, up to `jitter` more."""

    base: Seconds = 60.0
    cap: Seconds = 3600.0
    jitter: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.1


class RetentionSettings(_Section):
    """How long what is done with stays, in seconds; None (`"keep"`) means for ever."""

    sent: Age = 7 * 86400.0
    """SENT and CANCELLED rows. A key whose row is gone is new again: the window of duplicates."""
    failed: Age = None
    audit: Age = None
    counters: Age = 90 * 86400.0
    """After this time the daily counts become one; no total changes."""
    archive: Literal["none", "table", "file"] = "none"
    archive_file: Annotated[Path | None, BeforeValidator(_not_empty)] = None
    interval: Seconds = 60.0
    batch_rows: Annotated[int, Field(ge=1, le=10_000)] = 1000


class AuditSettings(_Section):
    """What the audit keeps of operator actions."""

    payload: Literal["hash", "full"] = "hash"
    """Of a payload that `edit` replaces: its SHA-256, or all of it beside that."""


class RouteSettings(_Section):
    """Where a destination (or a shell-style pattern of them) goes, and what the record key is."""

    destination: Annotated[str, Field(min_length=1, max_length=200)]
    topic: Annotated[str, AfterValidator(_topic)] | None = None
    key: KeyChoice = KeyChoice.AUTO
    dead_letter: Annotated[str, AfterValidator(_topic)] | None = None
    """Topic that gets the record of a row that ends FAILED; the row stays FAILED all the same."""
    on_failure: OnFailure = OnFailure.BLOCK
    """What a failed row does to later rows of its ordering key."""


class HttpSettings(_Section):
    """Probes and metrics of a running relay; off unless a port is set."""

    host: Annotated[str, Field(min_length=1, max_length=255)] = "127.0.0.1"
    port: Annotated[Annotated[int, Field(ge=0, le=65535)] | None, BeforeValidator(_not_empty)] = (
        None
    )
    """0 takes any free one; the log tells which."""
    frozen_after: Seconds = 60.0
    """A thread without sign of life for so long fails `/livez`."""


class MetricsSettings(_Section):
    """What the relay's metrics cost, in label values and in samples of the backlog."""

    max_destinations: Annotated[int, Field(ge=0, le=10_000)] = 100
    """Destinations with label values of their own; the rest are `other`."""
    sample_interval: Seconds = 15.0


class LogSettings(_Section):
    """Log lines go to stderr; `auto` is readable on a terminal and JSON elsewhere."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "console", "json"] = "auto"


class LocalSettings(_Section):
    """Local parts for laptop, demo and tests."""

    kafka: Literal["auto", "real", "mock"] = "auto"
    data: Path | None = None
    bootstrap_servers: Annotated[str | None, BeforeValidator(_not_empty)] = None
    database_url: Url = None


class EnqueueSettings(_Section):
    """Limits for writers."""

    max_payload_bytes: Annotated[ByteSize, Field(ge=1)] = ByteSize(1_000_000)


class HandoffSettings(_Section):
    """What `outbox-bridge hand-off` needs and no command line should show."""

    authorization: Annotated[SecretStr | None, BeforeValidator(_not_empty)] = None
    """Value of the header Authorization, `Bearer …` for example."""
    inbox_url: Url = None
    """Database with the inbox; without one, the API alone tells repetitions."""
    inbox_schema: Annotated[str, AfterValidator(_identifier)] = "public"


class ConsoleSettings(_Section):
    """The operator's pages in a browser; see docs/console.md."""

    host: Annotated[str, Field(min_length=1, max_length=255)] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8470
    """0 takes a free port; the program prints it."""
    public_url: Annotated[str | None, BeforeValidator(_not_empty)] = None
    """Where people reach it through a reverse proxy, its path included."""
    allowed_hosts: tuple[str, ...] = ()
    """Further names that may stand in a request's Host header."""
    auth: Literal["none", "basic", "proxy"] = "none"
    role: Literal["viewer", "operator"] = "operator"
    """What everybody may do where auth is none."""
    users: tuple[SecretStr, ...] = ()
    """For basic: `name:role:hash`, as `outbox-bridge console --add-user NAME` prints it."""
    trusted_proxies: tuple[str, ...] = ()
    """For proxy: addresses and networks whose user header is believed."""
    user_header: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")] = "X-Forwarded-User"
    operators: tuple[str, ...] = ()
    """For proxy: logins that may act; everybody else looks on. `*`: all."""
    secret: Url = None
    """Signs sessions; unset, a new one at each start."""
    read_url: Url = None
    """Database connection for reading, such as a reader's login or a standby."""
    statement_timeout: Seconds = 5.0
    refresh: Seconds = 2.0
    """How often the database is asked whether there is anything new, while somebody looks."""
    payloads: Literal["everybody", "operators", "nobody"] = "everybody"
    masks: tuple[str, ...] = ()
    """Fields of payloads (`card.number`, `**.password`) and headers (`header:authorization`)."""
    trace_link: Annotated[str | None, BeforeValidator(_not_empty)] = None
    """A trace in your tracing system: a URL with {trace_id}."""


class Settings(BaseSettings):
    """Every setting, by section. Made by `load_settings`; frozen; its repr shows no secret."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    database: DatabaseSettings = Field(default_factory=DatabaseSettings)
    kafka: KafkaSettings = Field(default_factory=KafkaSettings)
    relay: RelaySettings = Field(default_factory=RelaySettings)
    retry: RetrySettings = Field(default_factory=RetrySettings)
    retention: RetentionSettings = Field(default_factory=RetentionSettings)
    audit: AuditSettings = Field(default_factory=AuditSettings)
    routes: tuple[RouteSettings, ...] = ()
    http: HttpSettings = Field(default_factory=HttpSettings)
    metrics: MetricsSettings = Field(default_factory=MetricsSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    local: LocalSettings = Field(default_factory=LocalSettings)
    enqueue: EnqueueSettings = Field(default_factory=EnqueueSettings)
    handoff: HandoffSettings = Field(default_factory=HandoffSettings)
    console: ConsoleSettings = Field(default_factory=ConsoleSettings)

    _origins: dict[SettingPath, Origin] = PrivateAttr(default_factory=dict)
    _file: Path | None = PrivateAttr(default=None)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the signature is pydantic-settings'
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - see above
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - see above
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - see above
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take merged layers only: the stock sources know neither origins nor property names."""
        return (init_settings,)

    def router(self) -> Router:
        """Build the map from destinations to topics."""
        return Router(
            Rule(route.destination, route.topic, route.key, route.on_failure, route.dead_letter)
            for route in self.routes
        )

    @property
    def database_url(self) -> str | None:
        """The database's URL in clear; None leaves everything to libpq's `PG*` variables."""
        return self.database.url.get_secret_value() if self.database.url else None

    @property
    def file(self) -> Path | None:
        """The settings file that was read."""
        return self._file

    def origin(self, *path: str) -> Origin:
        """Where the value of a setting comes from: `origin("relay", "lease")`."""
        return self._origins.get(path, DEFAULT_ORIGIN)


def is_color_wanted() -> bool:
    """Tell whether NO_COLOR (https://no-color.org) is unset or empty."""
    return not os.environ.get("NO_COLOR")


_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def are_traces_wanted(service: str) -> bool:
    """Tell whether OpenTelemetry's variables ask for traces; fill in what they leave open.

    They do where OTEL_TRACES_EXPORTER names an exporter, or an OTLP endpoint is given, unless
    OTEL_SDK_DISABLED is true. As a distribution of OpenTelemetry does, sets what is not set, for
    the SDK to read: the exporter `otlp`, its protocol `http/protobuf`, the service's name.
    """
    given = os.environ
    exporter = given.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    asked = bool(exporter) or any(given.get(name) for name in _ENDPOINTS)
    is_disabled = given.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if not asked or exporter == "none" or is_disabled:
        return False
    defaults = {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
    if "service.name=" not in given.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        defaults["OTEL_SERVICE_NAME"] = service
    for name, value in defaults.items():
        if not given.get(name):
            given[name] = value
    return True


@dataclass(frozen=True, slots=True)
class ServiceManager:
    """What systemd (or another that speaks its protocol) asks of this process.

    `socket` is where it listens, None where there is none; `watchdog` is the longest time in
    seconds between two signs of life, None where none are asked for.
    """

    socket: str | None = None
    watchdog: float | None = None


def service_manager() -> ServiceManager:
    """Read NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID, as sd_notify(3) describes them."""
    address = os.environ.get("NOTIFY_SOCKET") or None
    usec = os.environ.get("WATCHDOG_USEC", "")
    is_ours = os.environ.get("WATCHDOG_PID") in (None, "", str(os.getpid()))
    asked = address is not None and is_ours and usec.isdecimal() and int(usec) > 0
    return ServiceManager(address, int(usec) / 1_000_000 if asked else None)


def child_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a child process that must see these settings and no others.

    What this process was given for itself, libpq's variables included, stays with it.
    """
    kept = {name: text for name, text in os.environ.items() if not name.startswith((PREFIX, "PG"))}
    return kept | dict(settings)


def setting_fields() -> dict[str, tuple[str, ...]]:
    """Name all sections and their fields as files write them; `routes` are a route's fields."""
    sections: dict[str, type[BaseModel]] = {
        name: field.default_factory  # type: ignore[misc] # each section's default is its class
        for name, field in Settings.model_fields.items()
        if name != "routes"
    }
    sections["routes"] = RouteSettings
    fields = {
        section: tuple(info.alias or name for name, info in model.model_fields.items())
        for section, model in sections.items()
    }
    fields["kafka"] = tuple(name for name in fields["kafka"] if name != "properties")
    return fields


def load_settings(
    config: Path | None = None, overrides: Mapping[str, Any] | None = None
) -> Settings:
    """Read, merge and check all sources.

    `config` is the file named on the command line; `overrides` are nested values from there, None
    where an option was not given. Raises `ConfigurationError`, one line for each setting that is
    unknown, malformed or contradicts another; no line holds a secret.
    """
    fields = setting_fields()
    file = _file_to_read(config)
    merged = merge(
        (
            read_overrides(overrides, fields),
            read_environment(os.environ, fields),
            read_file(file, fields) if file else Layer(),
        )
    )
    try:
        settings = Settings(**merged.values)
    except ValidationError as error:
        raise ConfigurationError(describe_invalid(error, merged)) from None
    settings._origins.update(merged.origins)  # noqa: SLF001 - set here alone, frozen from then on
    settings._file = file  # noqa: SLF001 - see above
    if problems := contradictions(settings):
        raise ConfigurationError("\n".join(problems))
    return settings


def _file_to_read(config: Path | None) -> Path | None:
    if config is not None:
        return config
    if named := os.environ.get(CONFIG_VARIABLE):
        return Path(named)
    return DEFAULT_FILE if DEFAULT_FILE.is_file() else None
