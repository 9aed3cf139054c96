from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.cli.config import MASK, effective, mask_url
from bridge.errors import ConfigurationError
from bridge.kafka.properties import Property, is_secret, refusal
from bridge.setting_sources import setting_name
from bridge.settings import Settings, load_settings

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "hunter2-and-more"  # noqa: S105 - what must not be shown


def problems(**sections: Any) -> list[str]:
    try:
        load_settings(None, sections)
    except ConfigurationError as error:
        return str(error).splitlines()
    return []


def test_heartbeat_may_be_a_third_of_the_lease_and_not_more() -> None:
    """pgqueuer#430: a heartbeat as slow as the lease lost living workers their jobs."""
    assert problems(relay={"heartbeat_interval": 40}) == []
    (problem,) = problems(relay={"heartbeat_interval": 41})
    assert "relay.heartbeat_interval = 41 (the command line)" in problem
    assert "relay.lease = 120 (the default)" in problem
    assert "use 40 or less" in problem


def test_lease_must_end_before_the_stuck_timeout() -> None:
    (problem,) = problems(relay={"lease": "30m"})
    assert "relay.stuck_timeout = 1800 (the default) must be longer than" in problem
    assert problems(relay={"lease": "29m"}) == []


def test_message_timeout_must_leave_time_to_hand_rows_over_within_the_lease() -> None:
    assert problems(relay={"lease": 112}) == []
    (problem,) = problems(relay={"lease": 110})
    assert 'kafka."message.timeout.ms" = 90000 (the default) must be less than' in problem
    assert "= 89000, with relay.lease = 110 (the command line)" in problem
    assert problems(kafka={"message.timeout.ms": 97_999}) == []
    for name in ("message.timeout.ms", "delivery.timeout.ms"):
        for value in (98_000, "98000", 0):
            (problem,) = problems(kafka={name: value, "allow_unsafe": [name]})
            assert f'kafka."{name}" = {value} (the command line)' in problem


def test_message_timeout_must_be_a_number() -> None:
    (problem,) = problems(kafka={"message.timeout.ms": "soon"})
    assert "must be a whole number of milliseconds" in problem


def test_batch_and_inline_payload_must_fit_into_what_may_be_in_flight() -> None:
    (problem,) = problems(relay={"batch_rows": 16001})
    assert "relay.batch_rows = 16001" in problem
    assert "relay.max_inflight_rows = 16000 (the default)" in problem
    (problem,) = problems(relay={"inline_payload_bytes": "65MiB"})
    assert "relay.max_inflight_bytes = 67108864" in problem


def test_retry_base_must_not_exceed_the_cap() -> None:
    (problem,) = problems(retry={"base": 3601})
    assert "retry.base = 3601 (the command line) must not be more than retry.cap = 3600" in problem


def test_every_contradiction_is_named_at_once() -> None:
    lines = problems(relay={"lease": 6, "batch_rows": 17_000}, retry={"base": "2h"})
    assert len(lines) == 4


def test_route_that_would_never_be_used_is_refused() -> None:
    (problem,) = problems(
        routes=[{"destination": "a"}, {"destination": "b"}, {"destination": "a", "topic": "t"}]
    )
    assert "routes[2].destination = 'a'" in problem
    assert "routes[0]" in problem


@pytest.mark.parametrize("topic", ["", ".", "..", "a b", "ä", "x" * 250])
def test_topic_that_kafka_does_not_allow_is_refused(topic: str) -> None:
    (problem,) = problems(routes=[{"destination": "a", "topic": topic}])
    assert "routes[0].topic = " in problem


@pytest.mark.parametrize("name", ["", "x" * 64, "ü" * 32, "a\0b"])
def test_schema_that_postgresql_would_cut_is_refused(name: str) -> None:
    (problem,) = problems(database={"schema": name})
    assert problem.startswith("database.schema = ")


UNSAFE = [
    ("enable.idempotence", False),
    ("enable.idempotence", "FALSE"),
    ("enable.idempotence", "0"),
    ("acks", 1),
    ("acks", "0"),
    ("request.required.acks", 1),
    ("max.in.flight.requests.per.connection", 6),
    ("max.in.flight", "6"),
    ("partitioner", "consistent_random"),
    ("retries", 0),
    ("message.send.max.retries", "0"),
    ("queuing.strategy", "lifo"),
    ("enable.gapless.guarantee", True),
    ("api.version.request", "false"),
    ("test.mock.num.brokers", 3),
]


@pytest.mark.parametrize(("name", "value"), UNSAFE)
def test_property_that_breaks_a_promise_is_refused_unless_forced(name: str, value: Any) -> None:
    (problem,) = problems(kafka={name: value})
    assert problem.startswith(f"{setting_name(('kafka', name))} = ")
    assert "is refused: " in problem
    assert f'add "{name}" to kafka.allow_unsafe' in problem
    assert problems(kafka={name: value, "allow_unsafe": [name]}) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delivery.report.only.error", True),
        ("transactional.id", "relay"),
        ("metadata.broker.list", "a:9092"),
        ("dr_msg_cb", "f"),
        ("error_cb", "f"),
    ],
)
def test_property_that_cannot_work_is_refused_even_if_forced(name: str, value: Any) -> None:
    (problem,) = problems(kafka={name: value, "allow_unsafe": [name]})
    assert problem.startswith(f"{setting_name(('kafka', name))} = ")
    assert "allow_unsafe" not in problem


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("enable.idempotence", True),
        ("enable.idempotence", "true"),
        ("acks", "all"),
        ("acks", -1),
        ("max.in.flight", 5),
        ("partitioner", "murmur2"),
        ("retries", 10),
        ("delivery.report.only.error", False),
        ("linger.ms", 5),
        ("security.protocol", "ssl"),
    ],
)
def test_harmless_property_passes(name: str, value: Any) -> None:
    assert problems(kafka={name: value}) == []


def test_forced_name_that_is_not_set_is_refused() -> None:
    (problem,) = problems(kafka={"allow_unsafe": ["acks"]})
    assert "allow_unsafe names 'acks'" in problem


def test_property_under_two_names_is_refused() -> None:
    (problem,) = problems(kafka={"acks": "all", "request.required.acks": "all"})
    assert 'is another name of "acks"' in problem


def test_unquoted_property_in_toml_means_the_same(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text(
        '[kafka]\nbootstrap.servers = "a:1"\nlinger.ms = 5\nssl.key.password = "x"\n'
        'ssl.ca.location = "y"\n"queue.buffering.max.kbytes" = 7\n'
    )
    kafka = load_settings(file).kafka
    assert kafka.bootstrap_servers == "a:1"
    assert kafka.properties == {
        "linger.ms": 5,
        "ssl.key.password": "x",
        "ssl.ca.location": "y",
        "queue.buffering.max.kbytes": 7,
    }


def test_property_variables_become_property_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX_BRIDGE_KAFKA_LINGER_MS", "5")
    monkeypatch.setenv("OUTBOX_BRIDGE_KAFKA_SASL_OAUTHBEARER_CLIENT_ID", "me")
    monkeypatch.setenv("OUTBOX_BRIDGE_KAFKA_LOG_LEVEL", "3")
    monkeypatch.setenv("OUTBOX_BRIDGE_KAFKA_DEBUG", "broker")
    assert load_settings().kafka.properties == {
        "linger.ms": "5",
        "sasl.oauthbearer.client.id": "me",
        "log_level": "3",
        "debug": "broker",
    }


SECRET_SETTINGS = [
    ("OUTBOX_BRIDGE_DATABASE_URL", f"postgresql://app:{SECRET}@db/shop"),
    ("OUTBOX_BRIDGE_DATABASE_DIRECT_URL", f"host=db password='{SECRET}' user=app"),
    ("OUTBOX_BRIDGE_LOCAL_DATABASE_URL", f"postgresql://db/shop?sslpassword={SECRET}"),
    ("OUTBOX_BRIDGE_KAFKA_SASL_PASSWORD", SECRET),
    ("OUTBOX_BRIDGE_KAFKA_SSL_KEY_PASSWORD", SECRET),
    ("OUTBOX_BRIDGE_KAFKA_SSL_KEY_PEM", SECRET),
    ("OUTBOX_BRIDGE_KAFKA_SSL_KEYSTORE_PASSWORD", SECRET),
    ("OUTBOX_BRIDGE_KAFKA_SASL_OAUTHBEARER_CLIENT_SECRET", SECRET),
    ("OUTBOX_BRIDGE_KAFKA_SASL_OAUTHBEARER_CONFIG", f"principal=x secret={SECRET}"),
    ("OUTBOX_BRIDGE_KAFKA_SASL_OAUTHBEARER_ASSERTION_PRIVATE_KEY_PASSPHRASE", SECRET),
]


@pytest.mark.parametrize(("variable", "text"), SECRET_SETTINGS)
def test_secret_is_in_no_text_that_is_made_of_the_settings(
    variable: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, text)
    settings = load_settings()
    shown = [repr(settings), str(settings), repr(settings.kafka), repr(settings.database)]
    shown += [f"{one.name} {one.value} {one.origin}" for one in effective(settings)]
    assert any(MASK in one for one in shown)
    assert not any(SECRET in one for one in shown)


@pytest.mark.parametrize(("variable", "text"), SECRET_SETTINGS)
def test_secret_is_in_no_error(variable: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, text)
    monkeypatch.setenv("OUTBOX_BRIDGE_RELAY_LEASE", "-1")
    monkeypatch.setenv("OUTBOX_BRIDGE_KAFKA_ACKS", "1")
    for name in ("OUTBOX_BRIDGE_RELAY_LEASE", "OUTBOX_BRIDGE_KAFKA_ACKS"):
        with pytest.raises(ConfigurationError) as caught:
            load_settings()
        assert SECRET not in str(caught.value)
        assert caught.value.__cause__ is None
        monkeypatch.delenv(name)


def test_malformed_secret_is_not_repeated() -> None:
    lines = problems(
        kafka={"sasl.password": [SECRET]},
        database={"url": [SECRET]},
        routes=[{"destination": "a", "key": "b"}],
    )
    assert len(lines) == 3
    assert SECRET not in "".join(lines)


passwords = st.text(
    st.characters(codec="ascii", categories=["L", "N", "P", "S"], exclude_characters="'\\&"),
    min_size=8,
    max_size=30,
)


@given(passwords)
def test_password_in_a_url_is_masked_however_it_looks(password: str) -> None:
    shown = mask_url(f"postgresql://app:{password}@db.example.net:5432/shop")
    assert shown == f"postgresql://app:{MASK}@db.example.net:5432/shop"


@given(passwords)
def test_password_in_a_connection_string_is_masked(password: str) -> None:
    for text in (
        f"host=db password={password} user=app",
        f"host=db PASSWORD = '{password}' user=a",
    ):
        assert password not in mask_url(text).replace("user=app", "")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://db/shop",
        "postgresql://app@db:5432/shop?application_name=a",
        "host=db user=app dbname=shop",
        "postgresql:///shop?host=/run/postgresql",
    ],
)
def test_url_without_password_is_shown_as_it_is(url: str) -> None:
    assert mask_url(url) == url


@given(st.text(max_size=30), st.one_of(st.text(max_size=10), st.integers(), st.booleans()))
def test_looking_at_any_property_never_fails(name: str, value: Property) -> None:
    refusal(name, value)
    is_secret(name)


def test_brokers_are_asked_for_where_they_are_needed() -> None:
    with pytest.raises(ConfigurationError, match="OUTBOX_BRIDGE_KAFKA_BOOTSTRAP_SERVERS=host:9092"):
        Settings().kafka.require_bootstrap_servers()
