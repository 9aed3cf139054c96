"""The Django app: transactions, migrations in step with our ledger, an admin that only shows."""

from __future__ import annotations

import io
import json
import unittest
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connections, transaction
from django.db.migrations.loader import MigrationLoader
from django.db.utils import OperationalError
from django.test import Client, TestCase, override_settings
from django.test.utils import (
    CaptureQueriesContext,
    setup_test_environment,
    teardown_test_environment,
)

from bridge import Message, TransactionStateError, enqueue_many
from bridge.database.migrations import Migrator
from bridge.database.schema_files import read_migrations
from bridge.errors import OperationError, SchemaError
from bridge.integrations import django as outbox_app
from bridge.integrations.django.models import OutboxMessage
from tests.enqueue.messages import fields, keys
from tests.fixtures.postgres import on_one_server
from tests.integrations.django_project import connect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.db.backends.base.base import BaseDatabaseWrapper

    from tests.fixtures.cli import RunCliFunction
    from tests.fixtures.postgres import PostgresServer

Connection = psycopg.Connection[tuple[Any, ...]]

pytestmark = [on_one_server, pytest.mark.usefixtures("postgres")]

LATEST = len(read_migrations())


@pytest.fixture
def database(outbox_url: str) -> Iterator[BaseDatabaseWrapper]:
    """Django's default database, with an outbox made by `migrate up`."""
    connection = connect(outbox_url)
    connection.ensure_connection()
    yield connection
    connection.close()


@pytest.fixture
def empty(empty_database_url: str) -> Iterator[BaseDatabaseWrapper]:
    """Django's default database, without anything."""
    connection = connect(empty_database_url)
    yield connection
    connection.close()


def migrate(*arguments: str) -> str:
    out = io.StringIO()
    call_command("migrate", "outbox_bridge", *arguments, stdout=out, verbosity=1)
    return out.getvalue()


# Transactions


@pytest.mark.usefixtures("database")
def test_autocommit_is_refused(observer: Connection) -> None:
    with pytest.raises(TransactionStateError, match=r"'default' is in autocommit.*atomic\(\)"):
        outbox_app.enqueue(**fields("a"), payload={})
    with pytest.raises(TransactionStateError, match="autocommit"):
        outbox_app.enqueue_many([Message(**fields("a"), payload={})])
    assert keys(observer) == []


@pytest.mark.usefixtures("database")
def test_transaction_of_a_test_case_alone_is_refused(observer: Connection) -> None:
    """A view that forgot `atomic()` must fail in its tests, not in production."""

    class Case(TestCase):
        def test_alone(self) -> None:
            with pytest.raises(TransactionStateError, match="only the test case has a transaction"):
                outbox_app.enqueue(**fields("a"), payload={})

        def test_with_atomic(self) -> None:
            with transaction.atomic():
                outbox_app.enqueue(**fields("a"), payload={})
            assert OutboxMessage.objects.get().message_key == "a"

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Case).run(result)
    assert (result.testsRun, result.errors, result.failures) == (2, [], [])
    assert keys(observer) == []


def test_transaction_by_hand_is_one(database: BaseDatabaseWrapper, observer: Connection) -> None:
    database.set_autocommit(False)
    outbox_app.enqueue(**fields("a"), payload={})
    assert keys(observer) == []
    database.commit()
    database.set_autocommit(True)
    assert keys(observer) == ["a"]


@pytest.mark.usefixtures("database")
def test_atomic_block_that_must_roll_back_is_refused(observer: Connection) -> None:
    with transaction.atomic():
        outbox_app.enqueue(**fields("a"), payload={})
        transaction.set_rollback(True)
        with pytest.raises(TransactionStateError, match="leave the atomic block"):
            outbox_app.enqueue(**fields("b"), payload={})
    assert keys(observer) == []


@pytest.mark.usefixtures("database")
def test_other_databases_are_refused() -> None:
    with (
        transaction.atomic(using="other"),
        pytest.raises(TransactionStateError, match="'other' is sqlite"),
    ):
        outbox_app.enqueue(**fields("a"), payload={}, using="other")


def test_lost_connection_reaches_the_callers_own_retry(
    database: BaseDatabaseWrapper, observer: Connection
) -> None:
    raw: Any = database.connection
    with pytest.raises(OperationalError), transaction.atomic():  # noqa: PT012 - the block is lost
        observer.execute("select pg_terminate_backend(%s)", [raw.info.backend_pid])
        outbox_app.enqueue(**fields("a"), payload={})


def test_schema_is_a_setting(database: BaseDatabaseWrapper, observer: Connection) -> None:
    Migrator(observer, "messaging").up()
    with override_settings(OUTBOX_BRIDGE_SCHEMA="messaging"), transaction.atomic():
        outbox_app.enqueue(**fields("a"), payload={})
        outbox_app.enqueue_many([Message(**fields("b"), payload={})])
    assert keys(observer) == []
    rows = observer.execute("select message_key from messaging.app_outbox order by 1").fetchall()
    assert rows == [("a",), ("b",)]
    observer.execute("drop schema messaging cascade")


# Migrations


def test_each_sql_migration_has_one_of_django() -> None:
    """A new pair of SQL files needs a file of the same name in `django/migrations`."""
    loader = MigrationLoader(None)
    names = sorted(name for label, name in loader.disk_migrations if label == "outbox_bridge")
    assert names == [f"{m.version:04d}_{m.name}" for m in read_migrations()]
    numbers = [
        loader.disk_migrations["outbox_bridge", name].operations[0].number  # type: ignore[attr-defined]
        for name in names
    ]
    assert numbers == list(range(1, LATEST + 1))
    assert loader.graph.leaf_nodes("outbox_bridge") == [("outbox_bridge", names[-1])]


@pytest.mark.usefixtures("empty")
def test_migrate_makes_what_migrate_up_makes(
    empty_database_url: str, run_cli: RunCliFunction
) -> None:
    migrate()
    status = json.loads(run_cli("migrate", "status", "--json").stdout)["migrations"]
    assert [row["state"] for row in status] == ["applied"] * LATEST
    with psycopg.connect(empty_database_url, autocommit=True) as conn:
        Migrator(conn).verify()
        assert Migrator(conn).up() == []
    migrate("0002")
    status = json.loads(run_cli("migrate", "status", "--json").stdout)["migrations"]
    assert [row["state"] for row in status] == ["applied"] * 2 + ["pending"] * (LATEST - 2)
    migrate("zero")
    with psycopg.connect(empty_database_url) as conn:
        left = conn.execute("select tablename from pg_tables where tablename like 'app_outbox%'")
        assert left.fetchall() == []
    migrate()
    call_command("makemigrations", "--check", "--dry-run", "outbox_bridge", verbosity=0)


def test_outbox_that_migrate_up_made_is_adopted(
    database: BaseDatabaseWrapper, observer: Connection
) -> None:
    """Both tools may be used in turn: the ledger says what is there."""
    Migrator(observer).down(3)
    assert migrate("0001").count("OK") == 1
    assert migrate().count("OK") == LATEST - 1
    Migrator(observer).verify()
    Migrator(observer).down(LATEST - 1)
    migrate(f"{LATEST - 2:04d}")
    assert Migrator(observer).status()[LATEST - 2].state == "pending"
    migrate()
    Migrator(observer).verify()
    with database.cursor() as cursor:
        cursor.execute("drop table django_migrations")


def test_outbox_with_other_content_is_refused(
    database: BaseDatabaseWrapper, observer: Connection
) -> None:
    changed = "update app_outbox_migration set checksum = %s where version = 1 returning checksum"
    before = observer.execute("select checksum from app_outbox_migration where version = 1")
    checksum = before.fetchall()[0][0]
    observer.execute(changed, ["0" * 64])
    with pytest.raises(SchemaError, match="with other content"):
        migrate()
    observer.execute(changed, [checksum])
    with database.cursor() as cursor:
        cursor.execute("drop table if exists django_migrations")


@pytest.mark.usefixtures("empty")
def test_sqlmigrate_prints_the_sql() -> None:
    out = io.StringIO()
    call_command("sqlmigrate", "outbox_bridge", "0001", stdout=out)
    assert "create table" in out.getvalue()
    assert "insert into" in out.getvalue()
    assert "app_outbox_migration" in out.getvalue()
    back = io.StringIO()
    call_command("sqlmigrate", "outbox_bridge", "0001", backwards=True, stdout=back)
    assert "drop table" in back.getvalue()


def test_other_databases_are_left_alone() -> None:
    call_command("migrate", "outbox_bridge", database="other", verbosity=0)
    tables = connections["other"].introspection.table_names()
    assert not [name for name in tables if name.startswith("app_outbox")]


# Admin


@pytest.fixture(scope="module")
def admin_url(postgres: PostgresServer) -> Iterator[str]:
    """A database with Django's own tables, an outbox with a few rows, and a user who may look."""
    url = postgres.create_database()
    connection = connect(url)
    call_command("migrate", verbosity=0)
    User.objects.create_superuser("root", password="x")  # noqa: S106 - of this test
    with psycopg.connect(url) as conn:
        messages = [Message(**fields(f"order-{n}"), payload={"n": n}) for n in range(1, 61)]
        enqueue_many(conn, messages)
        enqueue_many(
            conn,
            [
                Message(**fields("evil"), payload={"x": "<script>alert(1)</script>"}),
                Message(**fields("long"), payload={"x": "y" * 30_000}),
                Message(**fields("raw"), payload=b"\x00\x01", content_type="application/x-p"),
                Message(**fields("gone"), payload=None),
            ],
        )
        conn.execute("update app_outbox set status = 'FAILED' where message_key = 'order-7'")
        conn.execute("update app_outbox set status = 'SENT' where message_key = 'order-8'")
        conn.execute("delete from app_outbox_queue where outbox_id = 5")
        conn.execute("update app_outbox set status = 'PROCESSING' where outbox_id = 5")
        conn.execute(
            "insert into app_outbox_claim (claim_id, relay_id, outbox_ids)"
            " values (gen_random_uuid(), 1, '{5}')"
        )
    connection.close()
    yield url
    connection.close()
    postgres.drop_database(url)


@pytest.fixture
def browser(admin_url: str) -> Iterator[Client]:
    connection = connect(admin_url)
    setup_test_environment()
    client = Client()
    client.force_login(User.objects.get(username="root"))
    yield client
    teardown_test_environment()
    connection.close()


LIST = "/admin/outbox_bridge/outboxmessage/"


def test_admin_lists_the_newest_first(browser: Client) -> None:
    page = browser.get(LIST)
    text = page.content.decode()
    assert page.status_code == 200
    assert text.index("gone") < text.index("order-60") < text.index("order-20")
    assert "Add message" not in text
    assert "order-1<" in browser.get(LIST, {"p": 2}).content.decode()


def shown(browser: Client, **query: str) -> list[str]:
    found = browser.get(LIST, query).context["cl"].result_list
    return sorted(message.message_key for message in found)


def test_admin_finds_by_key_id_and_state(browser: Client) -> None:
    assert shown(browser, q="order-7") == ["order-7"]
    assert shown(browser, q="order") == []
    assert shown(browser, q="17") == ["order-17"]
    assert shown(browser, q="9" * 30) == []
    assert shown(browser, state="failed") == ["order-7"]
    assert {"order-7", "order-8"}.isdisjoint(shown(browser, state="unsent", all="1"))
    assert len(shown(browser, state="unsent", all="1")) == 62
    assert "order-5" in shown(browser, state="unsent", all="1")  # handed to a relay


def test_admin_reads_no_payload_for_a_list_and_counts_no_further_than_it_shows(
    browser: Client,
) -> None:
    with CaptureQueriesContext(connections["default"]) as seen:
        browser.get(LIST)
    statements = [query["sql"] for query in seen if "app_outbox" in query["sql"]]
    assert statements
    assert not [sql for sql in statements if "payload" in sql]
    counts = [sql for sql in statements if "COUNT(" in sql]
    assert counts
    assert all("LIMIT 10000" in sql for sql in counts)
    assert not [sql for sql in statements if "LIMIT" not in sql]


@pytest.mark.parametrize(
    ("key", "there", "absent"),
    [
        ("order-3", ["{&quot;n&quot;:3}", "orders", "order.created"], ['type="submit"']),
        ("evil", ["&lt;script&gt;alert(1)"], ["<script>alert(1)"]),
        ("long", ["y" * 19_000 + "", "…"], ["y" * 20_001]),
        ("raw", ["2 bytes", "application/x-p"], []),
        ("gone", ["none (a tombstone)"], []),
    ],
)
def test_admin_shows_a_message(
    browser: Client, key: str, there: list[str], absent: list[str]
) -> None:
    message = OutboxMessage.objects.get(message_key=key)
    page = browser.get(f"{LIST}{message.pk}/change/")
    text = page.content.decode()
    assert page.status_code == 200
    for part in there:
        assert part in text
    content = text.partition('<div id="content-main">')[2]
    for part in absent:
        assert part not in content


def test_admin_changes_nothing(browser: Client, admin_url: str) -> None:
    message = OutboxMessage.objects.get(message_key="order-3")
    for path in (f"{LIST}add/", f"{LIST}{message.pk}/delete/"):
        assert browser.get(path).status_code == 403
        assert browser.post(path, {"post": "yes"}).status_code == 403
    assert browser.post(f"{LIST}{message.pk}/change/", {"status": "SENT"}).status_code == 403
    selected = {"action": "delete_selected", "_selected_action": [message.pk], "post": "yes"}
    browser.post(LIST, selected)
    with psycopg.connect(admin_url) as conn:
        counted = conn.execute("select count(*) from app_outbox where status = 'PENDING'")
        assert counted.fetchone() == (61,)


def test_admin_needs_the_right_to_view(admin_url: str) -> None:
    connection = connect(admin_url)
    user = User.objects.create_user("staff", is_staff=True)
    client = Client()
    client.force_login(user)
    assert client.get(LIST).status_code == 403
    names = apps.get_model("auth", "Permission").objects.filter(
        content_type__app_label="outbox_bridge"
    )
    assert [permission.codename for permission in names] == ["view_outboxmessage"]
    user.user_permissions.set(names)
    assert client.get(LIST).status_code == 200
    user.delete()
    connection.close()


def test_model_is_for_reading(browser: Client) -> None:
    message = OutboxMessage.objects.get(message_key="order-3")
    assert str(message) == "order.created order-3"
    assert message.headers == {}
    with pytest.raises(OperationError, match="call bridge"):
        message.save()
    with pytest.raises(OperationError, match="relay prunes"):
        message.delete()
