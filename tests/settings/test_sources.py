from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from bridge.errors import ConfigurationError
from bridge.kafka.producer import DEFAULTS
from bridge.setting_sources import variable_name
from bridge.settings import Settings, load_settings, setting_fields

EXAMPLE = Path(__file__).parents[2] / "deploy" / "outbox-bridge.example.toml"


def write(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


def test_defaults_are_complete_and_agree_with_each_other() -> None:
    settings = load_settings()
    assert settings.database.schema_name == "public"
    assert settings.database.url is None
    assert settings.relay.lease == 120
    assert settings.relay.name.rpartition("-")[2] == str(os.getpid())
    assert settings.kafka.message_timeout_ms == 90_000
    assert settings.file is None
    assert settings.origin("relay", "lease").kind == "default"


def test_default_message_timeout_is_what_the_producer_sets() -> None:
    assert load_settings().kafka.message_timeout_ms == DEFAULTS["message.timeout.ms"]


def test_example_file_loads_and_repeats_the_defaults() -> None:
    settings = load_settings(EXAMPLE)
    default = load_settings()
    assert settings.relay == default.relay.model_copy(update={"name": settings.relay.name})
    assert (settings.retry, settings.log, settings.enqueue) == (
        default.retry,
        default.log,
        default.enqueue,
    )
    assert settings.routes == default.routes


def test_example_routes_work_when_their_comment_marks_are_taken_off(tmp_path: Path) -> None:
    marks = re.compile(r"(?m)^# (\[\[routes\]\]$|(?:destination|topic|key) = )")
    file = write(tmp_path / "s.toml", marks.sub(r"\1", EXAMPLE.read_text("utf-8")))
    router = load_settings(file).router()
    assert router.route("orders").topic == "shop.orders.v1"
    assert router.route("audit.login").topic == "shop.audit"


def test_example_file_names_every_setting_of_the_relay() -> None:
    text = EXAMPLE.read_text("utf-8")
    fields = setting_fields()
    missing = [
        f"{section}.{name}"
        for section in ("database", "kafka", "relay", "retry", "log", "enqueue")
        for name in fields[section]
        if f"\n{name} = " not in text and f"\n# {name} = " not in text
    ]
    assert missing == []


def test_command_line_beats_environment_beats_file_beats_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = write(
        tmp_path / "s.toml", "[relay]\nbatch_rows = 1\nsettle_rows = 1\nmax_inflight_rows = 900\n"
    )
    monkeypatch.setenv("OUTBOX_BRIDGE_RELAY_BATCH_ROWS", "2")
    monkeypatch.setenv("OUTBOX_BRIDGE_RELAY_SETTLE_ROWS", "2")
    settings = load_settings(file, {"relay": {"batch_rows": 3, "settle_rows": None}})
    relay = settings.relay
    assert (relay.batch_rows, relay.settle_rows, relay.max_inflight_rows) == (3, 2, 900)
    assert settings.origin("relay", "batch_rows").kind == "cli"
    assert settings.origin("relay", "settle_rows").where.endswith("OUTBOX_BRIDGE_RELAY_SETTLE_ROWS")
    assert settings.origin("relay", "max_inflight_rows").where == str(file)
    assert settings.origin("relay", "lease").kind == "default"


def test_named_file_beats_the_one_in_the_environment_beats_the_one_in_the_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write(tmp_path / "outbox-bridge.toml", '[relay]\nname = "folder"\n')
    assert load_settings().relay.name == "folder"
    environment = write(tmp_path / "e.toml", '[relay]\nname = "environment"\n')
    monkeypatch.setenv("OUTBOX_BRIDGE_CONFIG", str(environment))
    assert load_settings().relay.name == "environment"
    named = write(tmp_path / "n.toml", '[relay]\nname = "named"\n')
    assert load_settings(named).relay.name == "named"


@pytest.mark.parametrize("by", ["argument", "environment"])
def test_named_file_that_is_missing_is_an_error(
    by: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "missing.toml"
    if by == "environment":
        monkeypatch.setenv("OUTBOX_BRIDGE_CONFIG", str(path))
    with pytest.raises(ConfigurationError, match=r"missing\.toml cannot be read: No such file"):
        load_settings(path if by == "argument" else None)


def test_file_that_is_no_toml_is_named_with_its_line(tmp_path: Path) -> None:
    file = write(tmp_path / "s.toml", "[relay]\nlease =\n")
    with pytest.raises(ConfigurationError, match=r"s\.toml is not valid TOML: .*line 2"):
        load_settings(file)


@pytest.mark.parametrize(
    ("variable", "nearest"),
    [
        ("OUTBOX_BRIDGE_RELAY_BATCH_ROW", "OUTBOX_BRIDGE_RELAY_BATCH_ROWS"),
        ("OUTBOX_BRIDGE_DATABASE_UR", "OUTBOX_BRIDGE_DATABASE_URL"),
        ("OUTBOX_BRIDGE_KAFKA_BOOTSTRAP_SERVER", "OUTBOX_BRIDGE_KAFKA_BOOTSTRAP_SERVERS"),
        ("OUTBOX_BRIDGE_ROUTE", "OUTBOX_BRIDGE_ROUTES"),
        ("OUTBOX_BRIDGE_CONFIGS", "OUTBOX_BRIDGE_CONFIG"),
    ],
)
def test_unknown_variable_is_refused_with_the_nearest(
    variable: str, nearest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "1")
    with pytest.raises(
        ConfigurationError, match=rf"{variable} is unknown; did you mean {nearest}\?"
    ):
        load_settings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[relays]\nlease = 1", '"relays" in .*did you mean relay'),
        ("[relay]\nlese = 1", r"relay\.lese in .*did you mean lease"),
        ("[relay]\nschema_name = 1", "is unknown"),
        ("[database]\nschema_name = 'x'", "did you mean schema"),
        ("[kafka]\nbootstrap_server = 'x'", "did you mean bootstrap_servers"),
        ("[kafka]\nretry = 3", "did you mean retries"),
        (
            "[[routes]]\ndestination = 'a'\ntopics = 'b'",
            r"routes\[0\]\.topics .*did you mean topic",
        ),
        ("lease = 3", '"lease" in .* is unknown'),
        ("relay = 3", r'"relay" in .* must be a section: write \[relay\]'),
        ("[routes]\na = 1", "must be a list of tables"),
        ("routes = ['orders']", "must be a list of tables"),
    ],
)
def test_unknown_name_in_the_file_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load_settings(write(tmp_path / "s.toml", text))


@pytest.mark.parametrize(
    "variable",
    [
        "OUTBOX_BRIDGE_TEST_POSTGRES",
        # What Kubernetes sets beside a service called outbox-bridge, or outbox-bridge-relay.
        "OUTBOX_BRIDGE_SERVICE_HOST",
        "OUTBOX_BRIDGE_SERVICE_PORT",
        "OUTBOX_BRIDGE_SERVICE_PORT_HTTP",
        "OUTBOX_BRIDGE_PORT",
        "OUTBOX_BRIDGE_PORT_8080_TCP",
        "OUTBOX_BRIDGE_PORT_8080_TCP_ADDR",
        "OUTBOX_BRIDGE_RELAY_SERVICE_HOST",
        "OUTBOX_BRIDGE_RELAY_PORT_8080_TCP_PROTO",
        # A service called outbox-bridge-http, whose variable is also a setting.
        "OUTBOX_BRIDGE_HTTP_PORT",
        "OUTBOX_BRIDGE_CONSOLE_PORT",
    ],
)
def test_variables_that_are_no_settings_are_left_alone(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "tcp://10.0.0.1:8080")
    load_settings()


def test_a_port_is_a_setting_although_kubernetes_has_such_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OUTBOX_BRIDGE_HTTP_PORT", "9464")
    assert load_settings().http.port == 9464
    monkeypatch.setenv("OUTBOX_BRIDGE_HTTP_PORT", "94640")
    with pytest.raises(ConfigurationError, match=r"http\.port"):
        load_settings()


def test_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX_BRIDGE_RELAY_LEASE", "")
    monkeypatch.setenv("OUTBOX_BRIDGE_DATABASE_URL", " ")
    settings = load_settings()
    assert settings.relay.lease == 120
    assert settings.database_url is None


def test_every_field_can_be_set_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    values: dict[str, Any] = {
        "kafka": "mock",
        "level": "debug",
        "format": "json",
        "failed": "keep",
        "audit": "keep",
        "payload": "full",
        "archive": "file",
        "missing_topic": "create",
        "port": "9464",
        "auth": "proxy",
        "role": "viewer",
        "payloads": "nobody",
        "host": "127.0.0.2",
        "public_url": "https://outbox.example.net",
        "trusted_proxies": "10.0.0.5",
        "secret": "some-text-that-is-long",
        "trace_link": "https://traces.example.net/{trace_id}",
        "users": '["ana:viewer:$argon2id$v=19"]',
    }
    default = load_settings()
    for section, fields in setting_fields().items():
        if section == "routes":
            continue
        for field in fields:
            attribute = "schema_name" if field == "schema" else field
            value = getattr(getattr(default, section), attribute)
            if field in values:
                text = values[field]
            elif isinstance(value, int | float):
                text = str(value)
            else:
                text = "acks" if field == "allow_unsafe" else "some-text"
            monkeypatch.setenv(variable_name((section, field)), text)
    monkeypatch.setenv("OUTBOX_BRIDGE_KAFKA_ACKS", "1")
    settings = load_settings()
    assert settings.relay.name == "some-text"
    assert settings.database_url == "some-text"
    assert settings.local.kafka == "mock"
    assert settings.kafka.allow_unsafe == ("acks",)
    assert all(
        settings.origin(section, field).kind == "env"
        for section, fields in setting_fields().items()
        if section != "routes"
        for field in fields
    )


def test_routes_come_as_a_whole_from_one_source(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = write(tmp_path / "s.toml", "[[routes]]\ndestination = 'a'\ntopic = 'file'\n")
    assert load_settings(file).router().route("a").topic == "file"
    monkeypatch.setenv("OUTBOX_BRIDGE_ROUTES", '[{"destination": "b.*", "topic": "env"}]')
    router = load_settings(file).router()
    assert (router.route("a").topic, router.route("b.c").topic) == ("a", "env")


def test_malformed_routes_in_the_environment_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX_BRIDGE_ROUTES", "[{]")
    with pytest.raises(ConfigurationError, match="OUTBOX_BRIDGE_ROUTES is not valid JSON"):
        load_settings()
    monkeypatch.setenv("OUTBOX_BRIDGE_ROUTES", '[{"topic": "t"}]')
    with pytest.raises(ConfigurationError, match=r"routes\[0\]\.destination is missing"):
        load_settings()


def test_settings_are_frozen_all_the_way_down() -> None:
    settings = load_settings()
    with pytest.raises(ValidationError):
        settings.relay = settings.relay
    with pytest.raises(ValidationError):
        settings.relay.lease = 5


def test_settings_made_by_hand_do_not_look_at_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OUTBOX_BRIDGE_RELAY_NAME", "from-environment")
    monkeypatch.setenv("RELAY", "{}")
    assert Settings().relay.name != "from-environment"


@given(
    st.floats(min_value=0.001, max_value=1000, allow_nan=False),
    st.sampled_from([("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), (" s", 1.0)]),
)
def test_durations_are_read_in_every_unit(amount: float, unit: tuple[str, float]) -> None:
    text = f"{amount:.6f}{unit[0]}"
    expected = round(amount, 6) * unit[1]
    if expected <= 0:
        return
    settings = Settings.model_validate({"relay": {"sleep": text}})
    assert settings.relay.sleep == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "0", "-1", "nan", "inf", "1 week", "1e999", "s", "true"])
def test_malformed_durations_are_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=r"relay\.sleep = .*command line"):
        load_settings(None, {"relay": {"sleep": text}})


@pytest.mark.parametrize(("text", "size"), [("2MiB", 2 << 20), ("3 kB", 3000), (4096, 4096)])
def test_sizes_are_read_in_every_unit(text: str | int, size: int) -> None:
    settings = load_settings(None, {"relay": {"inline_payload_bytes": text}})
    assert settings.relay.inline_payload_bytes == size


def test_every_malformed_value_is_named_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = write(tmp_path / "s.toml", "[relay]\nbatch_rows = 'many'\n[log]\nlevel = 'loud'\n")
    monkeypatch.setenv("OUTBOX_BRIDGE_RETRY_JITTER", "2")
    with pytest.raises(ConfigurationError) as caught:
        load_settings(file)
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    assert lines[0].startswith(f"relay.batch_rows = 'many' ({file}): ")
    assert lines[1].startswith(
        "retry.jitter = '2' (environment variable OUTBOX_BRIDGE_RETRY_JITTER): "
    )
    assert lines[2].startswith(f"log.level = 'loud' ({file}): should be 'debug', 'info'")


@given(st.text(max_size=40))
def test_no_duration_text_gives_anything_but_seconds_or_a_clear_error(text: str) -> None:
    try:
        settings = load_settings(None, {"relay": {"sleep": text}})
    except ConfigurationError as error:
        assert str(error).startswith("relay.sleep = ")  # noqa: PT017 - either outcome is fine
    else:
        assert settings.relay.sleep > 0
