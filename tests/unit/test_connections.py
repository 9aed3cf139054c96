"""Connections say who they are, and errors never say the password."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from bridge.database.connection import PLANNER_GUARDS, connect, first_line, prepare_session
from bridge.errors import DatabaseError

if TYPE_CHECKING:
    from tests.fixtures.postgres import PostgresServer


@pytest.mark.parametrize(
    ("relay", "shown"),
    [
        ("eu-1", "outbox-bridge/eu-1/settle"),
        ("x" * 100, f"outbox-bridge/{'x' * 42}/settle"),
        ("zürich", "outbox-bridge/z?rich/settle"),
        ("ü" * 100, f"outbox-bridge/{'?' * 42}/settle"),
    ],
)
def test_the_application_name_ends_with_the_stage(
    postgres: PostgresServer, relay: str, shown: str
) -> None:
    with connect(postgres.url, stage="settle", relay_name=relay) as conn:
        row = conn.execute("select current_setting('application_name')").fetchone()
    assert row == (shown,)


def test_the_session_does_not_depend_on_the_roles_settings(postgres: PostgresServer) -> None:
    options = (
        "-c default_transaction_isolation=serializable -c statement_timeout=1000 "
        "-c default_transaction_read_only=on -c idle_in_transaction_session_timeout=1000"
    )
    url = psycopg.conninfo.make_conninfo(postgres.url, options=options)
    with connect(url, stage="claim") as conn:
        prepare_session(conn, lock_timeout=0.25)
        shown = {
            name: (conn.execute(f"show {name}").fetchone() or ("",))[0]
            for name in (
                "transaction_isolation",
                "transaction_read_only",
                "statement_timeout",
                "idle_in_transaction_session_timeout",
                "lock_timeout",
                *PLANNER_GUARDS,
            )
        }
    assert shown == {
        "transaction_isolation": "read committed",
        "transaction_read_only": "off",
        "statement_timeout": "0",
        "idle_in_transaction_session_timeout": "30s",
        "lock_timeout": "250ms",
        **PLANNER_GUARDS,
    }


def test_a_refused_connection_names_the_server_and_not_the_password(
    postgres: PostgresServer,
) -> None:
    parts = urlsplit(postgres.url)
    host = f"{parts.username}:s3cret@{parts.hostname}:1"
    with pytest.raises(DatabaseError) as raised:
        connect(urlunsplit(parts._replace(netloc=host)), stage="claim")
    assert "port 1" in str(raised.value)
    assert "s3cret" not in str(raised.value)


def test_an_unreadable_url_says_what_is_expected() -> None:
    with pytest.raises(DatabaseError, match="OUTBOX_BRIDGE_DATABASE_URL") as raised:
        connect("postgresql://user:s3cret@[::1/name", stage="claim")
    assert "s3cret" not in str(raised.value)


def test_only_the_first_line_of_an_error_is_told() -> None:
    assert first_line(ValueError("what\nHINT: more")) == "what"
    assert first_line(ValueError("")) == "ValueError"
