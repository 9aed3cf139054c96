"""What is SQLAlchemy's own: sessions and their flush, its logging, targets that cannot carry."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from sqlalchemy import JSON, String, create_engine, event, exc, text
from sqlalchemy.ext.asyncio import (
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    mapped_column,
    scoped_session,
    sessionmaker,
)

import bridge
from bridge import Message, TransactionStateError
from bridge.integrations.sqlalchemy import (
    enqueue,
    enqueue_async,
    enqueue_many,
    enqueue_many_async,
)
from tests.enqueue.messages import fields, keys
from tests.fixtures.postgres import on_one_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

Connection = psycopg.Connection[tuple[Any, ...]]

pytestmark = [on_one_server, pytest.mark.usefixtures("postgres")]


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    state: Mapped[str] = mapped_column(String(20), unique=True)
    extra: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)


@pytest.fixture
def engine(outbox_url: str) -> Iterator[Engine]:
    made = create_engine(outbox_url.replace("postgresql:", "postgresql+psycopg:"))
    Base.metadata.create_all(made)
    yield made
    Base.metadata.drop_all(made)
    made.dispose()


@pytest.fixture
def async_url(outbox_url: str) -> str:
    return outbox_url.replace("postgresql:", "postgresql+asyncpg:")


def test_session_is_flushed_before_the_message_gets_its_id(
    engine: Engine, observer: Connection
) -> None:
    with Session(engine) as session, session.begin():
        statements: list[str] = []
        event.listen(engine, "before_cursor_execute", lambda *seen: statements.append(seen[2]))
        order = Order(state="new")
        session.add(order)
        enqueue(session, **fields("order-created"), payload={"state": order.state})
        assert order.id == 1
        assert [statement.split()[0].lower() for statement in statements] == ["insert", "insert"]
        assert "INTO orders" in statements[0]
    assert keys(observer) == ["order-created"]


def test_flush_obeys_no_autoflush_and_its_errors_are_sqlalchemys(engine: Engine) -> None:
    with Session(engine) as session:
        session.add(Order(state="same"))
        with session.no_autoflush:
            enqueue(session, **fields("a"), payload={})
        assert session.new
        session.commit()
        session.add(Order(state="same"))
        with pytest.raises(exc.IntegrityError):
            enqueue(session, **fields("b"), payload={})
        # The session is as after any flush that failed.
        session.rollback()
        enqueue(session, **fields("b"), payload={})


def test_failed_flush_leaves_a_session_that_is_refused(engine: Engine) -> None:
    with Session(engine) as session:
        session.begin_nested()
        session.add_all([Order(state="same"), Order(state="same")])
        with pytest.raises(exc.IntegrityError):
            session.flush()
        session.rollback()
        enqueue(session, **fields("a"), payload={})
        with engine.connect() as connection:
            connection.begin()
            nested = connection.begin_nested()
            with pytest.raises(exc.DBAPIError):
                connection.execute(text("select 1 / 0"))
            with pytest.raises(TransactionStateError, match="failed already"):
                enqueue(connection, **fields("b"), payload={})
            nested.rollback()
            enqueue(connection, **fields("b"), payload={})


def test_autocommit_is_refused(engine: Engine, observer: Connection) -> None:
    autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
    with autocommit.connect() as connection:
        with pytest.raises(TransactionStateError, match="in autocommit"):
            enqueue(connection, **fields("a"), payload={})
        with pytest.raises(TransactionStateError, match="in autocommit"):
            enqueue_many(connection, [Message(**fields("a"), payload={})])
    with Session(autocommit) as session, pytest.raises(TransactionStateError, match="autocommit"):
        enqueue(session, **fields("a"), payload={})
    assert keys(observer) == []


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_autocommit_is_refused_on_asynchronous_connections(
    outbox_url: str, observer: Connection, driver: str
) -> None:
    engine = create_async_engine(outbox_url.replace("postgresql:", f"postgresql+{driver}:"))
    autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
    async with autocommit.connect() as connection:
        with pytest.raises(TransactionStateError, match="in autocommit"):
            await enqueue_async(connection, **fields("a"), payload={})
    await engine.dispose()
    assert keys(observer) == []


def test_session_that_must_not_begin_is_refused(engine: Engine) -> None:
    with Session(engine, autobegin=False) as session:
        with pytest.raises(TransactionStateError, match="session cannot be used"):
            enqueue(session, **fields("a"), payload={})
        with session.begin():
            enqueue(session, **fields("a"), payload={})


def test_closed_and_lost_connections(engine: Engine, observer: Connection) -> None:
    connection = engine.connect()
    connection.close()
    with pytest.raises(TransactionStateError, match="connection is closed"):
        enqueue(connection, **fields("a"), payload={})
    with engine.connect() as connection:
        pid = connection.execute(text("select pg_backend_pid()")).scalar()
        observer.execute("select pg_terminate_backend(%s)", [pid])
        with pytest.raises(exc.OperationalError):  # SQLAlchemy's, for the caller's own retry
            enqueue(connection, **fields("a"), payload={})
        with pytest.raises(TransactionStateError, match="closed"):
            enqueue(connection, **fields("a"), payload={})


@pytest.mark.parametrize("target", [None, "postgresql://", object(), Session])
async def test_what_is_neither_session_nor_connection_is_refused(target: Any) -> None:
    with pytest.raises(TransactionStateError, match="expected a SQLAlchemy session"):
        enqueue(target, **fields(), payload={})
    with pytest.raises(TransactionStateError, match="expected a SQLAlchemy session"):
        await enqueue_async(target, **fields(), payload={})


async def test_wrong_colour_and_engines_get_a_hint(engine: Engine, async_url: str) -> None:
    async_engine = create_async_engine(async_url)
    one: dict[str, Any] = {**fields(), "payload": {}}
    wrong: Any
    for wrong in (engine, async_engine):
        with pytest.raises(TransactionStateError, match=r"engine\.begin\(\)"):
            enqueue(wrong, **one)
    async with AsyncSession(async_engine) as asynchronous:
        wrong = asynchronous
        with pytest.raises(TransactionStateError, match="await enqueue_async"):
            enqueue(wrong, **one)
    with Session(engine) as synchronous:
        wrong = synchronous
        with pytest.raises(TransactionStateError, match="call enqueue or"):
            await enqueue_async(wrong, **one)
        with pytest.raises(TransactionStateError, match="call enqueue or"):
            await enqueue_many_async(wrong, [one])
    await async_engine.dispose()
    with (
        create_engine("sqlite://").connect() as sqlite,
        pytest.raises(TransactionStateError, match="this connection is sqlite"),
    ):
        enqueue(sqlite, **one)


def test_bridge_enqueue_names_the_way_to_go(engine: Engine) -> None:
    wrong: Any
    with (
        Session(engine) as wrong,
        pytest.raises(TransactionStateError, match=r"ions\.sqlalchemy\."),
    ):
        bridge.enqueue(wrong, **fields(), payload={})


async def test_scoped_sessions(engine: Engine, async_url: str, observer: Connection) -> None:
    scoped = scoped_session(sessionmaker(engine))
    enqueue(scoped, **fields("a"), payload={})
    scoped.commit()
    scoped.remove()
    async_engine = create_async_engine(async_url)
    async_scoped = async_scoped_session(async_sessionmaker(async_engine), lambda: 1)
    await enqueue_async(async_scoped, **fields("b"), payload={})
    await enqueue_many_async(async_scoped, [Message(**fields("c"), payload={})])
    await async_scoped.commit()
    await async_scoped.remove()
    await async_engine.dispose()
    assert keys(observer) == ["a", "b", "c"]


async def test_first_statement_of_an_asyncpg_connection_is_part_of_a_transaction(
    async_url: str, observer: Connection
) -> None:
    """SQLAlchemy begins late there: the driver's own connection would have been in autocommit."""
    engine = create_async_engine(async_url)
    async with engine.connect() as connection:
        await enqueue_async(connection, **fields("a"), payload={})
        assert keys(observer) == []
        await connection.rollback()
    async with engine.begin() as connection:
        await enqueue_async(connection, **fields("b"), payload={})
    await engine.dispose()
    assert keys(observer) == ["b"]


def test_statements_show_in_sqlalchemys_log(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "sqlalchemy.engine"), engine.connect() as connection:
        enqueue(connection, **fields("seen-key"), payload={})
    assert "app_outbox" in caplog.text
    assert "seen-key" in caplog.text
