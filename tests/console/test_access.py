from __future__ import annotations

import base64
from typing import Any

import pytest
from argon2 import PasswordHasher
from pydantic import SecretStr

from bridge.cli.config import effective
from bridge.console.access import Refusal, Role, door_for
from bridge.console.hosts import Hosts
from bridge.console.passwords import Passwords, Verdict, hash_password
from bridge.console.sessions import Sessions
from bridge.errors import ConfigurationError
from bridge.settings import ConsoleSettings, load_settings


def settings(**values: Any) -> ConsoleSettings:
    return load_settings(None, {"console": values}).console


def quick_hash(password: str) -> str:
    """Hash with less work than ours: the work is not what these tests are about."""
    return PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(password)


def problem(**values: Any) -> str:
    with pytest.raises(ConfigurationError) as raised:
        settings(**values)
    return str(raised.value)


def basic(name: str, password: str) -> list[str]:
    return ["Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()]


@pytest.fixture(scope="module")
def digest() -> str:
    return quick_hash("correct horse")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "db.example.net"])  # noqa: S104
def test_beyond_loopback_there_must_be_authentication(host: str, digest: str) -> None:
    assert "console.auth" in problem(host=host)
    settings(host=host, auth="basic", users=[f"ana:operator:{digest}"])


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_on_loopback_there_need_not_be(host: str) -> None:
    settings(host=host)


def test_settings_that_would_let_nobody_or_anybody_in_are_refused(digest: str) -> None:
    assert "needs console.users" in problem(auth="basic")
    assert "needs console.trusted_proxies" in problem(auth="proxy")
    assert "neither an address nor a network" in problem(auth="proxy", trusted_proxies=["proxy-1"])
    assert "name:role:hash" in problem(auth="basic", users=["ana:operator:secret"])
    assert "name:role:hash" in problem(auth="basic", users=[f"ana:root:{digest}"])
    twice = [f"ana:operator:{digest}", f"ana:viewer:{digest}"]
    assert "a second time" in problem(auth="basic", users=twice)
    assert "16 characters" in problem(secret="short")  # noqa: S106
    assert "trace_id" in problem(trace_link="https://traces.example.net/")
    assert "trace_id" in problem(trace_link="javascript:alert('{trace_id}')")


def test_no_problem_shows_a_hash(digest: str) -> None:
    assert digest not in problem(auth="basic", users=[f"ana:root:{digest}"])


def test_a_password_opens_the_door_to_its_owner_alone(digest: str) -> None:
    door = door_for(settings(auth="basic", users=[f"ana:operator:{digest}", f"bo:viewer:{digest}"]))
    assert door.identify("10.0.0.9", basic("ana", "correct horse")).may_act
    assert not door.identify("10.0.0.9", basic("bo", "correct horse")).may_act
    for told in (
        [],
        basic("ana", "wrong"),
        basic("eve", "correct horse"),
        ["Basic x"],
        ["Bearer y"],
    ):
        with pytest.raises(Refusal) as refused:
            door.identify("10.0.0.9", told)
        assert refused.value.status == 401
        assert "WWW-Authenticate" in refused.value.headers


def test_a_password_is_hashed_as_argon2_recommends() -> None:
    digest = hash_password("correct horse")
    assert digest.startswith("$argon2id$")
    assert Passwords({"ana": digest}).check("ana", "correct horse", "") is Verdict.RIGHT


def test_who_guesses_has_to_wait_and_others_do_not(digest: str) -> None:
    now = 0.0
    passwords = Passwords({"ana": digest}, clock=lambda: now)
    verdicts = {passwords.check("ana", f"guess {n}", "10.0.0.9") for n in range(10)}
    assert verdicts == {Verdict.WRONG}
    assert passwords.check("ana", "correct horse", "10.0.0.9") is Verdict.WAIT
    assert passwords.check("ana", "correct horse", "10.0.0.10") is Verdict.RIGHT
    now = 61.0
    assert passwords.check("ana", "correct horse", "10.0.0.9") is Verdict.RIGHT


def test_only_a_trusted_proxy_is_believed() -> None:
    door = door_for(
        settings(auth="proxy", trusted_proxies=["10.0.0.0/24", "fd00::1"], operators=["ana"])
    )
    assert door.identify("10.0.0.5", ["ana"]).role is Role.OPERATOR
    assert door.identify("::ffff:10.0.0.5", ["bo"]).role is Role.VIEWER
    assert door.identify("fd00::1", ["bo"]).name == "bo"
    for peer, told in (
        ("10.0.1.5", ["ana"]),
        ("127.0.0.1", ["ana"]),
        (None, ["ana"]),
        ("10.0.0.5", []),
        ("10.0.0.5", ["ana", "eve"]),
        ("10.0.0.5", ["  "]),
        ("10.0.0.5", ["a\nb"]),
    ):
        with pytest.raises(Refusal) as refused:
            door.identify(peer, told)
        assert refused.value.status == 403


def test_a_foreign_name_that_resolves_to_us_is_no_host_of_ours() -> None:
    hosts = Hosts(settings(public_url="https://outbox.example.net/x", allowed_hosts=["ops.local"]))
    for ours in ("127.0.0.1:8470", "localhost", "[::1]:8470", "outbox.example.net", "OPS.local:1"):
        assert hosts.is_ours(ours), ours
    for foreign in ("evil.example", "127.0.0.1.evil.example", "a@localhost", "localhost:x", ""):
        assert not hosts.is_ours(foreign), foreign


def test_only_our_own_pages_are_of_the_same_origin() -> None:
    hosts = Hosts(settings(public_url="https://outbox.example.net"))
    assert hosts.is_same_origin("http://127.0.0.1:8470", "127.0.0.1:8470")
    assert hosts.is_same_origin("https://outbox.example.net", "10.0.0.7:8470")
    for foreign in ("http://127.0.0.1:9000", "https://evil.example", "null", "file://", "http://["):
        assert not hosts.is_same_origin(foreign, "127.0.0.1:8470"), foreign


def test_a_session_that_was_not_signed_here_is_none() -> None:
    sessions = Sessions("k" * 32, port=1, secure=True, path="")
    session, cookie = sessions.begin()
    value = cookie.partition(";")[0]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    assert "Secure" in cookie
    assert sessions.read(value)[0] == session
    for broken in (value + "x", f"{sessions.name}=abc", "", "=;=", f"{sessions.name}={session}"):
        assert sessions.read(broken)[0] is None
    assert Sessions("l" * 32, port=1, secure=True, path="").read(value)[0] is None


def test_a_token_belongs_to_session_and_login() -> None:
    sessions = Sessions(None, port=1, secure=False, path="")
    token = sessions.token("s", "ana")
    assert sessions.is_valid(token, "s", "ana")
    assert not sessions.is_valid(token, "s", "bo")
    assert not sessions.is_valid(token, "t", "ana")
    assert not sessions.is_valid("", "s", "ana")
    assert not sessions.is_valid("é", "s", "ana")


def test_users_are_masked_where_settings_are_shown(digest: str) -> None:
    loaded = load_settings(
        None,
        {
            "console": {
                "auth": "basic",
                "users": [f"ana:operator:{digest}"],
                "secret": "0123456789abcdef",
                "read_url": "postgresql://r:hunter2@db/x",
            }
        },
    )
    shown = {one.name: str(one.value) for one in effective(loaded)}
    assert shown["console.users"] == "('ana:operator:***',)"
    assert shown["console.secret"] == "***"
    assert "hunter2" not in shown["console.read_url"]
    assert digest not in repr(loaded.console)
    assert isinstance(loaded.console.users[0], SecretStr)
