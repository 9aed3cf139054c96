"""What the console refuses, and what it never lets through."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bridge.console.connections import ReadConnections
from bridge.errors import DatabaseError
from bridge.settings import load_settings
from tests.console.test_access import quick_hash
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from tests.console.conftest import Console, NewConsoleFunction
    from tests.fixtures.relays import Outbox

STATIC = Path(__file__).resolve().parents[2] / "bridge" / "console" / "static"
HTMX_SHA256 = "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717"
HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>"
PAGES = (
    "/",
    "/messages",
    "/failures",
    "/keys",
    "/destinations",
    "/destinations/change?destination=orders",
    "/relays",
    "/audit",
    "/system",
)


def basic(name: str, password: str) -> dict[str, str]:
    code = base64.b64encode(f"{name}:{password}".encode()).decode()
    return {"Authorization": f"Basic {code}"}


def test_htmx_is_the_file_that_was_reviewed() -> None:
    (htmx,) = STATIC.glob("htmx-*.js")
    assert hashlib.sha256(htmx.read_bytes()).hexdigest() == HTMX_SHA256
    assert "Zero-Clause BSD" in (STATIC / "htmx.LICENSE").read_text()


def test_every_answer_carries_the_headers_that_confine_it(
    database_url: str, console: Console
) -> None:
    for path in (*PAGES, "/nothing-here", "/livez", "/static/console.css"):
        headers = console.http.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'self'; "), path
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "same-origin"
        assert "server" not in headers
    assert console.http.get("/").headers["cache-control"] == "no-store"
    assert "strict-transport-security" not in console.http.get("/").headers


def test_no_page_has_inline_script_or_style(database_url: str, console: Console) -> None:
    for path in PAGES:
        html = console.page(path)
        assert not re.search(r"<script(?![^>]*\bsrc=)", html), path
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", html), path
        for address in re.findall(r'(?:src|href)="([^"]+)"', html):
            assert address.startswith("/") or address == "#main", address


def test_hostile_rows_are_shown_as_text(outbox: Outbox, console: Console) -> None:
    (one,) = outbox.query(
        "insert into app_outbox (message_key, event_type, destination, ordering_key, payload_json, "
        "headers) values (%s, %s, %s, %s, to_json(%s::text), jsonb_build_object(%s::text, "
        "%s::text)) returning outbox_id",
        *([HOSTILE] * 7),
    )
    outbox.execute(
        "update app_outbox set status = 'FAILED', last_error_code = %s, last_error_msg = %s",
        HOSTILE,
        HOSTILE,
    )
    outbox.execute(
        "insert into app_outbox_hold (destination, ordering_key, outbox_id, key_hash, lane, "
        "boundary, error_code) select destination, ordering_key, outbox_id, 1, 1, outbox_id, "
        "last_error_code from app_outbox"
    )
    outbox.execute(
        "insert into app_outbox_control (destination, paused, reason) values (%s, true, %s)",
        HOSTILE,
        HOSTILE,
    )
    outbox.execute(
        "insert into app_outbox_relay (relay_name, host, pid, version, lease_seconds) "
        "values (left(%s, 128), %s, 1, left(%s, 50), 1)",
        *([HOSTILE] * 3),
    )
    for path in (
        *PAGES,
        f"/messages/{one[0]}",
        f"/act?action=retry&id={one[0]}",
        "/destinations/change?destination=%22%3E%3Cscript%3E",
        "/messages?key=%22%3E%3Cscript%3E&from=%3Cscript%3E",
        "/audit?by=%22%3E%3Cscript%3E",
    ):
        html = console.page(path)
        assert "<script>" not in html, path
        assert "<img" not in html, path


def test_a_form_without_its_token_changes_nothing(outbox: Outbox, console: Console) -> None:
    (one,) = outbox.add(1, "orders")
    outbox.execute("update app_outbox set status = 'FAILED'")
    act = {"action": "retry", "id": str(one), "reason": "x"}
    switch = {"destination": "orders", "switch": "pause", "reason": "x"}
    token = console.token()
    for path, form in (("/act", act), ("/destinations/set", switch), ("/theme", {"theme": "dark"})):
        for wrong in ({}, {"token": ""}, {"token": "0" * 64}):
            assert console.http.post(path, data={**form, **wrong}).status_code == 403
        for headers in (
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
        ):
            sent = console.http.post(path, data={**form, "token": token}, headers=headers)
            assert sent.status_code == 403, headers
    console.http.cookies.clear()
    assert console.http.post("/act", data={**act, "token": token}).status_code == 403
    assert outbox.row(one).status == "FAILED"
    assert outbox.query("select * from app_outbox_control") == []


def test_actions_are_never_reached_by_get(outbox: Outbox, console: Console) -> None:
    (one,) = outbox.add(1, "orders")
    outbox.execute("update app_outbox set status = 'FAILED'")
    console.page(f"/act?action=retry&id={one}&reason=x&token={console.token()}")
    for path in ("/destinations/set?switch=pause&reason=x&destination=orders", "/audit/verify"):
        assert console.http.get(path).status_code == 405
    assert outbox.row(one).status == "FAILED"


def test_a_foreign_host_name_is_refused(database_url: str, console: Console) -> None:
    for path in ("/", "/livez", "/static/console.js"):
        assert console.http.get(path, headers={"Host": "evil.example"}).status_code == 400


def test_a_viewer_looks_and_does_not_act(outbox: Outbox, new_console: NewConsoleFunction) -> None:
    (one,) = outbox.add(1, "orders")
    outbox.execute("update app_outbox set status = 'FAILED'")
    viewer = new_console(role="viewer")
    for path in (*PAGES, f"/messages/{one}"):
        html = viewer.page(path)
        assert "/act?" not in html, path
        assert 'action="/act"' not in html or 'name="action"' not in html, path
        assert 'action="/destinations/set"' not in html
    assert "viewer" in viewer.page(f"/act?action=retry&id={one}", 403)
    assert viewer.send("/act", action="retry", id=str(one), reason="x").status_code == 403
    switch = viewer.send("/destinations/set", destination="o", switch="pause", reason="x")
    assert switch.status_code == 403
    assert outbox.row(one).status == "FAILED"


def test_basic_authentication_names_the_actor(
    outbox: Outbox, new_console: NewConsoleFunction
) -> None:
    digest = quick_hash("correct horse")
    console = new_console(
        peer="10.0.0.9",
        host="0.0.0.0",  # noqa: S104 - what is tested
        auth="basic",
        users=[f"ana:operator:{digest}", f"bo:viewer:{digest}"],
    )
    for path in (*PAGES, "/events", "/find?q=1"):
        answer = console.http.get(path)
        assert answer.status_code == 401, path
        assert answer.headers["www-authenticate"].startswith("Basic ")
    assert console.http.get("/livez").status_code == 200
    console.http.headers.update(basic("ana", "correct horse"))
    console.send("/destinations/set", destination="orders", switch="pause", reason="incident")
    assert outbox.value("select changed_by from app_outbox_audit") == "ana"
    token = console.token()
    console.http.headers.update(basic("bo", "correct horse"))
    form = {"destination": "orders", "switch": "resume", "reason": "x", "token": token}
    assert console.http.post("/destinations/set", data=form).status_code == 403


def test_a_proxy_names_the_actor_and_nobody_else_does(
    outbox: Outbox, new_console: NewConsoleFunction
) -> None:
    settings = {
        "host": "0.0.0.0",  # noqa: S104 - what is tested
        "auth": "proxy",
        "trusted_proxies": ["10.0.0.5"],
        "operators": ["ana@example.net"],
        "public_url": "https://ops.example.net/outbox",
    }
    console = new_console(peer="10.0.0.5", **settings)
    console.http.headers.update({"X-Forwarded-User": "ana@example.net", "Host": "ops.example.net"})
    html = console.page("/outbox/relays")
    assert 'href="/outbox/messages"' in html
    assert 'href="/outbox/messages"' in console.page("/relays")  # a proxy that strips the prefix
    token = re.findall(r'name="token" value="([0-9a-f]{64})"', html)[0]
    cookie = console.http.get("/relays", headers={"Cookie": ""}).headers["set-cookie"]
    assert "Path=/outbox" in cookie
    assert "Secure" in cookie
    sent = console.http.post(
        "/outbox/destinations/set",
        data={"destination": "orders", "switch": "pause", "reason": "x", "token": token},
        headers={
            "Origin": "https://ops.example.net",
            "Cookie": console.http.get("/relays", headers={"Cookie": ""}).headers["set-cookie"],
        },
    )
    assert sent.status_code == 403  # another session's token
    assert console.http.get("/relays").headers["strict-transport-security"]
    stranger = new_console(peer="10.0.0.6", **settings)
    answer = stranger.http.get("/", headers={"X-Forwarded-User": "ana@example.net"})
    assert answer.status_code == 403


def test_the_system_page_shows_no_secret(
    database_url: str, new_console: NewConsoleFunction
) -> None:
    digest = quick_hash("correct horse")
    console = new_console(
        auth="basic",
        users=[f"ana:operator:{digest}"],
        secret="a-signing-key-0123456789",  # noqa: S106 - what is looked for
        read_url=database_url,
    )
    console.http.headers.update(basic("ana", "correct horse"))
    html = console.page("/system")
    assert "console.users" in html
    password = re.findall(r"//[^:]+:([^@]+)@", database_url)
    for secret in ("a-signing-key", digest, *password):
        assert secret not in html


def test_a_theme_leads_back_into_the_console_alone(database_url: str, console: Console) -> None:
    for back, expected in (
        ("/messages?status=FAILED", "/messages?status=FAILED"),
        ("https://evil.example/", "/"),
        ("//evil.example/", "/"),
        ("/\\evil.example", "/"),
    ):
        answer = console.send("/theme", theme="dark", back=back)
        assert answer.headers["location"] == expected
    assert 'data-theme="dark"' in console.page("/")


def test_pages_read_in_sessions_that_cannot_write(database_url: str) -> None:
    settings = load_settings(None, {"database": {"url": database_url}})
    reads = ReadConnections(settings)
    with (
        pytest.raises(DatabaseError, match="read-only transaction"),
        reads.reading() as conn,
    ):
        conn.execute("insert into app_outbox_control (destination, reason) values ('a', 'b')")
    with reads.reading() as conn:
        shown = dict(
            conn.execute(
                "select name, setting from pg_settings "
                "where name in ('statement_timeout', 'transaction_read_only', 'lock_timeout')"
            ).fetchall()
        )
    assert shown == {
        "statement_timeout": "5000",
        "transaction_read_only": "on",
        "lock_timeout": "1000",
    }
    reads.close()


def test_a_slow_statement_ends_and_says_so(outbox: Outbox, new_console: NewConsoleFunction) -> None:
    console = new_console(statement_timeout="0.2s")
    outbox.execute("begin")
    outbox.execute("lock table app_outbox in access exclusive mode")
    html = console.page("/messages", 503)
    outbox.execute("rollback")
    assert "took longer" in html or "lock timeout" in html
    # On a busy machine so short a time may be too short for a while.
    wait_until(lambda: console.http.get("/messages").status_code == 200, "it is read again")


def test_a_database_that_is_down_is_said_to_be(new_console: NewConsoleFunction) -> None:
    console = new_console()
    for path in ("/", "/messages", "/messages/1", "/failures", "/keys", "/relays", "/audit"):
        html = console.page(path, 503)
        assert "The database does not answer" in html
        assert 'data-poll="5000"' in html
    assert console.http.get("/livez").status_code == 200
    assert "cannot connect" in console.page("/system")


def test_a_database_without_our_tables_is_said_to_be(
    empty_database_url: str, new_console: NewConsoleFunction
) -> None:
    console = new_console(database_url=empty_database_url)
    assert "migrate up" in console.page("/", 503)


def test_broken_requests_are_answered_with_a_page(outbox: Outbox, console: Console) -> None:
    outbox.add(1, "orders")
    for path, status in (
        ("/nothing", 404),
        ("/messages/999999999999999999999999", 404),
        ("/jobs/unknown", 404),
        ("/messages?before=x&status=%00&key=%00&from=%00", 200),
        ("/messages?before=9223372036854775807", 200),
        ("/audit?before=99999999999999999999&row=x&by=%00", 200),
        ("/find?q=%00", 303),
        ("/destinations/change?destination=%00", 200),
        ("/act?action=retry", 422),
        ("/act", 400),
    ):
        assert console.http.get(path).status_code == status, path
