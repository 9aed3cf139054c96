"""The pytest plugin for users, run by pytester as a user's own suite."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bridge.testing.plugin import pytest_addoption
from tests.fixtures.postgres import on_one_server
from tests.fixtures.snippets import snippet, snippets

if TYPE_CHECKING:
    from tests.fixtures.kafka import KafkaBroker

pytestmark = [on_one_server, pytest.mark.usefixtures("postgres")]

PAGE = "testing.md"

SHOP = """
import pytest, psycopg, bridge

class Shop:
    def __init__(self, url):
        self.url = url
    def create_order(self, customer, total):
        with psycopg.connect(self.url) as conn:
            order = conn.execute("select count(*) + 1 from app_outbox").fetchone()[0]
            bridge.enqueue(
                conn, message_key=f"order-{order}", event_type="order.created",
                destination="orders", payload={"id": order, "total": total},
                ordering_key=str(order),
            )
            if total < 0:
                raise ValueError(total)

@pytest.fixture(autouse=True)
def emptied(outbox_database_url):
    with psycopg.connect(outbox_database_url) as conn:
        conn.execute("truncate app_outbox, app_outbox_queue restart identity")

@pytest.fixture
def shop(outbox_database_url):
    return Shop(outbox_database_url)
"""

ADD = """
import bridge

def add(conn, key="order-1", **other):
    given = {"event_type": "order.created", "destination": "orders", "payload": {"n": 1}, **other}
    return bridge.enqueue(conn, message_key=key, **given)
"""

RunSuite = Callable[..., pytest.RunResult]


@pytest.fixture
def run_suite(pytester: pytest.Pytester, database_url: str) -> RunSuite:
    """Run a user's suite: `SHOP` as its conftest, and files by name; `/` makes a folder.

    In a process of its own: pytester unloads what a run within this one has loaded, and C
    extensions do not survive that.
    """

    def run(files: dict[str, str], **ini: str) -> pytest.RunResult:
        pytester.makeconftest(SHOP)
        options = {"outbox_database_url": database_url, "asyncio_mode": "auto", **ini}
        lines = [f"{name} = {value}" for name, value in options.items()]
        pytester.makefile(".ini", pytest="\n".join(["[pytest]", *lines]))
        for name, code in files.items():
            path = pytester.path / f"{name}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"import psycopg, pytest, bridge\nfrom shop import add\n{code}")
        pytester.makepyfile(shop=ADD)
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", "--strict-config")

    return run


def test_each_snippet_of_the_page_is_run() -> None:
    source = Path(__file__).read_text()
    run = set(re.findall(r'snippet\(PAGE, "([a-z-]+)"\)', source))
    assert run == set(snippets(PAGE))


def test_ini_options_of_the_page_exist() -> None:
    text = snippet(PAGE, "ini").replace("# ", "").partition("\n")[2]
    names = [line.partition("=")[0].strip() for line in text.splitlines()]
    assert names == ["outbox_database_url", "outbox_schema", "outbox_kafka"]
    declared: list[str] = []

    class Parser:
        def addini(self, name: str, *_arguments: Any, **_options: Any) -> None:
            declared.append(name)

    parser: Any = Parser()
    pytest_addoption(parser)
    assert declared == ["outbox_database_url", "outbox_schema", "outbox_kafka"]


COUNTS = """
@pytest.fixture
def earlier(outbox_database_url):
    with psycopg.connect(outbox_database_url) as conn:
        add(conn, "before")

def test_one(earlier, outbox, outbox_database_url):
    outbox.assert_not_enqueued()
    with psycopg.connect(outbox_database_url) as conn:
        add(conn, "one")
        add(conn, "before")  # absorbed
    assert outbox.messages.keys == ["one"]
    assert len(outbox.messages) == 1 and outbox.messages[0].status == "PENDING"
    outbox.forget()
    outbox.assert_not_enqueued()

def test_two(earlier, outbox, outbox_database_url):
    outbox.assert_not_enqueued()
    with psycopg.connect(outbox_database_url) as conn:
        conn.execute("truncate app_outbox, app_outbox_queue restart identity")
        add(conn, "two")
    assert outbox.messages.keys == ["two"]
"""

FITS = """
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from unittest.mock import ANY
import pydantic

@dataclass
class Order:
    id: int
    at: datetime

class Model(pydantic.BaseModel):
    id: int

AT = datetime(2026, 1, 1, tzinfo=UTC)

def test(outbox, outbox_database_url):
    with psycopg.connect(outbox_database_url) as conn:
        add(conn, "a", payload=Order(1, AT), headers={"tenant": "x", "other": "y"})
        add(conn, "b", payload=b"\\x00", content_type="application/x-p", ordering_key="o")
        add(conn, "c", payload=None, event_type="order.gone")
        add(conn, "d", payload=' {"id": 1}', not_before=datetime.now(UTC) + timedelta(hours=1))
    outbox.assert_enqueued(payload=Order(1, AT), key="a")
    outbox.assert_enqueued(payload={"id": 1, "at": AT}, key="a")
    outbox.assert_enqueued(payload={"id": 1, "at": "2026-01-01T00:00:00+00:00"}, key="a")
    outbox.assert_enqueued(payload={"id": 1, "at": ANY}, key="a", headers={"tenant": "x"})
    outbox.assert_enqueued(payload=b"\\x00", ordering_key="o", key="b")
    outbox.assert_enqueued("order.gone", payload=None, ordering_key=None, key="c")
    outbox.assert_enqueued("order.created", count=3)
    later = outbox.assert_enqueued(payload=Model(id=1), key="d")
    assert later.is_later and later.payload_json == b' {"id": 1}'
    outbox.assert_not_enqueued(payload={"id": 1, "at": 2})
    outbox.assert_not_enqueued(payload=None, event_type="order.created")
    outbox.assert_not_enqueued(headers={"tenant": "y"})
    outbox.assert_not_enqueued(ordering_key=None, key="b")
"""

HINTS = """
import asyncio
from bridge import TransactionStateError

def test_sync(outbox):
    with pytest.raises(TransactionStateError, match="expected a connection of psycopg"):
        outbox.seen_by(object())

def test_failed(outbox, outbox_database_url):
    with psycopg.connect(outbox_database_url) as conn:
        with pytest.raises(psycopg.Error):
            conn.execute("select 1 / 0")
        with pytest.raises(TransactionStateError, match="failed already"):
            outbox.seen_by(conn)
        conn.rollback()

def test_async(outbox, outbox_database_url):
    async def wrong():
        with pytest.raises(TransactionStateError, match="outbox.seen_by"):
            await outbox.seen_by_async(object())
        async with await psycopg.AsyncConnection.connect(outbox_database_url) as conn:
            with pytest.raises(TransactionStateError, match="await outbox.seen_by_async"):
                outbox.seen_by(conn)
    asyncio.run(wrong())
"""

OVERRIDDEN = """
def test(outbox): assert outbox == "of the project"
"""

OVERRIDING = """
@pytest.fixture
def outbox(): return "of the project"
"""


def test_what_was_enqueued(run_suite: RunSuite) -> None:
    files = {
        "test_page": snippet(PAGE, "assertions"),
        "test_only_what_the_test_enqueued_counts": COUNTS,
        "test_what_fits": FITS,
        "test_wrong_connections_get_a_hint": HINTS,
        "own/test_fixtures_of_the_project_win": OVERRIDDEN,
        "own/conftest": OVERRIDING,
    }
    run_suite(files).assert_outcomes(passed=9)


SQLALCHEMY = """
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

@pytest.fixture
def engine(outbox_database_url):
    made = create_engine(outbox_database_url.replace("postgresql:", "postgresql+psycopg:"))
    yield made
    made.dispose()
"""

ROLLED_BACK = """
from bridge.integrations.sqlalchemy import enqueue

@pytest.mark.parametrize("_", range(2))
def test_rolled_back_with_the_test(outbox, session, _):
    first = dict(event_type="order.created", destination="orders", payload={})
    enqueue(session, message_key="order-1", **first)
    outbox.assert_enqueued("order.created", key="order-1", count=1)
    with session.begin_nested() as savepoint:
        enqueue(session, message_key="order-2", **first)
        outbox.assert_enqueued(key="order-2")
        savepoint.rollback()
    outbox.assert_not_enqueued(key="order-2")
    session.commit()
    assert outbox.messages.keys == ["order-1"]

def test_nothing_is_left(outbox_database_url):
    with psycopg.connect(outbox_database_url) as conn:
        assert conn.execute("select count(*) from app_outbox").fetchone() == (0,)
"""

DJANGO = """
from tests.integrations.django_project import connect

@pytest.fixture
def db(outbox_database_url):
    from django.db import transaction

    connection = connect(outbox_database_url)
    block = transaction.atomic()
    block._from_testcase = True
    block.__enter__()
    yield
    connection.set_rollback(True)
    block.__exit__(None, None, None)
    connection.close()
"""

UNDER_DJANGO = """
def test(outbox):
    from django.db import transaction
    from bridge.integrations.django import enqueue

    with transaction.atomic():
        enqueue(message_key="a", event_type="e", destination="d", payload={"a": 1})
    outbox.assert_enqueued("e", key="a", payload={"a": 1})
"""

ASYNC = """
import asyncpg
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from bridge.integrations import asyncpg as by_asyncpg, sqlalchemy as by_sqlalchemy

async def create_order(session, customer):
    names = {"message_key": "order-1", "event_type": "order.created", "destination": "orders"}
    await create_order.write(session, **names, payload={})

@pytest.fixture(params=["asyncpg", "psycopg", "sqlalchemy"])
async def session(request, outbox_database_url):
    url = outbox_database_url
    if request.param == "asyncpg":
        create_order.write = by_asyncpg.enqueue
        session = await asyncpg.connect(url)
        await session.execute("begin")
        yield session
        await session.close()
    elif request.param == "psycopg":
        create_order.write = bridge.enqueue_async
        async with await psycopg.AsyncConnection.connect(url) as session:
            yield session
            await session.rollback()
    else:
        create_order.write = by_sqlalchemy.enqueue_async
        engine = create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:"))
        async with AsyncSession(engine) as session:
            yield session
        await engine.dispose()

"""


def test_transactions_that_are_rolled_back(run_suite: RunSuite) -> None:
    uncommitted = "    outbox.assert_not_enqueued()  # nothing is committed\n"
    files = {
        "sync/conftest": SQLALCHEMY + snippet(PAGE, "rollback"),
        "sync/test_sqlalchemy": ROLLED_BACK,
        "under_django/conftest": DJANGO + snippet(PAGE, "django"),
        "under_django/test_django": UNDER_DJANGO,
        "test_async": ASYNC + snippet(PAGE, "async") + uncommitted,
    }
    run_suite(files).assert_outcomes(passed=3 + 1 + 3)


FAILURES = """
def enqueued(outbox_database_url):
    with psycopg.connect(outbox_database_url) as conn:
        add(conn, "order-1", payload={"id": 1, "total": 41})
        add(conn, "refund-7", event_type="refund.created", payload={"id": 7})

def test_none_fits(outbox, outbox_database_url):
    enqueued(outbox_database_url)
    outbox.assert_enqueued("order.created", key="order-1", payload={"id": 1, "total": 42})

def test_wrong_count(outbox, outbox_database_url):
    enqueued(outbox_database_url)
    outbox.assert_enqueued("refund.created", count=2)

def test_there_is_one(outbox, outbox_database_url):
    with psycopg.connect(outbox_database_url) as conn:
        add(conn, "new")
    outbox.assert_not_enqueued()

def test_nothing_is_there(outbox, outbox_database_url):
    with psycopg.connect(outbox_database_url) as conn:
        add(conn, "uncommitted")
        assert outbox.seen_by(conn).keys == ["uncommitted"]
        outbox.assert_enqueued()
"""


def test_failures_explain_themselves(run_suite: RunSuite) -> None:
    result = run_suite({"test_failures": FAILURES})
    result.assert_outcomes(failed=4)
    text = result.stdout.str()
    for part in (
        "no message fits: event_type='order.created', key='order-1', payload={'id': 1,",
        "enqueued: 2",
        "refund.created  refund-7 -> orders",
        "closest is outbox_id 1:",
        "payload (- expected, + enqueued):",
        '-   "total": 42',
        '+   "total": 41',
        "1 message fits, expected 2: event_type='refund.created'",
        "1 message fits, expected 0: any message",
        "nothing was enqueued, or it was rolled back; the outbox is read over a connection of its",
    ):
        assert part in text, part
    # The user's own line is shown, none of the plugin's.
    assert "bridge/testing" not in text


def test_missing_database_is_a_usage_error(run_suite: RunSuite) -> None:
    result = run_suite({"test_it": "def test(outbox): pass"}, outbox_database_url="")
    result.assert_outcomes(errors=1)
    assert "set outbox_database_url in pytest's ini file" in result.stdout.str()


NO_ENVIRONMENT = """
def test_neither_environment_nor_file_is_read(outbox_relay):
    assert outbox_relay.settings.relay.batch_rows == 1000
    assert outbox_relay.drain().sent == 0
    assert outbox_relay.records("nowhere-at-all") == []
"""


def test_relay(
    run_suite: RunSuite, monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester
) -> None:
    monkeypatch.setenv("OUTBOX_BRIDGE_DATABASE_URL", "postgresql://nowhere.invalid/x")
    monkeypatch.setenv("OUTBOX_BRIDGE_RELAY_BATCH_ROWS", "7")
    pytester.makefile(".toml", **{"outbox-bridge": "[relay]\nbatch_rows = 8\n"})
    page = snippet(PAGE, "relay")
    files = {
        "test_page": page,
        "test_surroundings": NO_ENVIRONMENT,
        "routed/conftest": snippet(PAGE, "relay-settings"),
        "routed/test_routed": page.replace('records("orders")', 'records("shop.orders")'),
    }
    run_suite(files).assert_outcomes(passed=3)


def test_relay_sends_to_a_real_kafka(run_suite: RunSuite, kafka: KafkaBroker) -> None:
    topic = kafka.create_topic("orders")
    tests = f"""
def test(outbox_relay, outbox_database_url):
    with psycopg.connect(outbox_database_url) as conn:
        for n in range(5):
            add(conn, f"order-{{n}}", destination="{topic}")
        add(conn, "gone", destination="{topic}", payload=None)
    assert outbox_relay.drain().sent == 6
    records = outbox_relay.records("{topic}")
    assert sorted(record.key for record in records) == ["gone", *(f"order-{{n}}" for n in range(5))]
    assert [record.payload for record in records if record.key == "gone"] == [None]
    assert outbox_relay.drain().sent == 0
"""
    run_suite({"test_it": tests}, outbox_kafka=kafka.bootstrap_servers).assert_outcomes(passed=1)


def test_plugin_loads_nothing_but_pytest() -> None:
    program = (
        "import sys, pytest\n"
        "before = set(sys.modules)\n"
        "import bridge.testing.plugin\n"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["bridge"]
