"""The console's two connections need no more than the two roles that are made for people."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from bridge.database.schema_files import read_schema_file
from bridge.database.template import render_script
from tests.console.test_pages import fail
from tests.console.test_security import PAGES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.console.conftest import NewConsoleFunction
    from tests.fixtures.postgres import PostgresServer
    from tests.fixtures.relays import Outbox


@pytest.fixture
def logins(outbox: Outbox, postgres: PostgresServer) -> Iterator[dict[str, str]]:
    """URLs of two logins of the test's own: a reader and an operator."""
    script = render_script(read_schema_file("roles.sql"), "public")
    with psycopg.connect(outbox.url, autocommit=True) as conn:
        conn.execute(script.encode())
    parts = urlsplit(outbox.url)
    urls: dict[str, str] = {}
    names: list[str] = []
    for role in ("reader", "operator"):
        name = f"console_{role}_{os.getpid()}"
        names.append(name)
        outbox.execute(f"create role {name} login password 'secret' in role outbox_{role}")
        place = parts.netloc.rpartition("@")[2]
        urls[role] = urlunsplit(parts._replace(netloc=f"{name}:secret@{place}"))
    yield urls
    with psycopg.connect(postgres.url, autocommit=True) as conn:
        for name in names:
            conn.execute(f"drop role {name}".encode())


def test_a_reader_reads_and_an_operator_acts(
    outbox: Outbox, logins: dict[str, str], new_console: NewConsoleFunction
) -> None:
    ids = outbox.add(2, "orders", ordering_key="k1")
    fail(outbox, ids[:1])
    console = new_console(database_url=logins["operator"], read_url=logins["reader"])
    for path in (*PAGES, f"/messages/{ids[0]}", "/messages?status=PENDING", "/messages?type=x"):
        console.page(path)
    assert "1 row set to PENDING again" in console.act("retry", id=ids[0], reason="mended")
    assert "1 row cancelled" in console.act("cancel", id=ids[1], reason="withdrawn")
    switch = console.send("/destinations/set", destination="orders", switch="pause", reason="x")
    assert switch.status_code == 303
    assert "The chain of 3 entries holds" in console.send("/audit/verify").text
    users = {row[0] for row in outbox.query("select database_user from app_outbox_audit")}
    assert users == {urlsplit(logins["operator"]).username}


def test_a_reader_alone_cannot_act(
    outbox: Outbox, logins: dict[str, str], new_console: NewConsoleFunction
) -> None:
    (one,) = outbox.add(1, "orders")
    fail(outbox, [one])
    console = new_console(database_url=logins["reader"])
    assert "permission denied" in console.act("retry", id=one, reason="x")
    answer = console.send("/destinations/set", destination="orders", switch="pause", reason="x")
    assert answer.status_code == 503
    assert "permission denied" in answer.text
    assert outbox.row(one).status == "FAILED"
