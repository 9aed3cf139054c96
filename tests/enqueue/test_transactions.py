"""A message is part of the caller's transaction, whatever becomes of it."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.adapt import Loader
from psycopg.pq import TransactionStatus
from psycopg.rows import class_row, dict_row
from psycopg.types.json import JsonbDumper
from psycopg.types.string import StrDumper

from bridge import Message, TransactionStateError, enqueue, enqueue_many
from bridge.database.template import advisory_class
from bridge.errors import SchemaError
from tests.enqueue.messages import fields, keys, queued

if TYPE_CHECKING:
    from collections.abc import Callable

Connection = psycopg.Connection[tuple[Any, ...]]


def enqueue_singly(target: Any, key: str = "order-1", **options: Any) -> None:
    enqueue(target, **fields(key), payload={"n": 1}, **options)


def enqueue_in_bulk(target: Any, key: str = "order-1", **options: Any) -> None:
    enqueue_many(target, [Message(**fields(key), payload={"n": 1})], **options)


both_ways = pytest.mark.parametrize("write", [enqueue_singly, enqueue_in_bulk])


@both_ways
def test_committed_with_the_business_data(
    conn: Connection, observer: Connection, write: Callable[..., None]
) -> None:
    write(conn)
    assert conn.info.transaction_status == TransactionStatus.INTRANS
    assert keys(observer) == []
    conn.commit()
    assert keys(observer) == queued(observer) == ["order-1"]


@both_ways
def test_rolled_back_with_the_business_data(
    conn: Connection, observer: Connection, write: Callable[..., None]
) -> None:
    write(conn)
    conn.rollback()
    write(conn, "order-2")
    conn.commit()
    assert keys(observer) == queued(observer) == ["order-2"]


@both_ways
def test_savepoints_take_it_back_or_keep_it(
    conn: Connection, observer: Connection, write: Callable[..., None]
) -> None:
    with conn.transaction():
        write(conn, "a")
        with conn.transaction():
            write(conn, "b")
        with conn.transaction():
            write(conn, "c")
            raise psycopg.Rollback
        with conn.transaction():
            write(conn, "c")
    assert keys(observer) == queued(observer) == ["a", "b", "c"]


@both_ways
@pytest.mark.parametrize("outcome", ["commit prepared", "rollback prepared"])
def test_two_phase_commit(
    outbox_url: str,
    conn: Connection,
    observer: Connection,
    write: Callable[..., None],
    outcome: str,
) -> None:
    """NOTIFY forbids PREPARE TRANSACTION, so such a session switches the wake-up off."""
    # As a sleeping relay does: now a writer notifies.
    observer.execute("select pg_advisory_lock(%s, 0)", [advisory_class("wake", "public")])
    with psycopg.connect(outbox_url) as unaware:
        write(unaware, "unaware")
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="NOTIFY"):
            unaware.execute("prepare transaction 'unaware'")
    conn.execute("set outbox_bridge.notify = 'off'")
    conn.commit()
    conn.tpc_begin(conn.xid(1, "order-1", "main"))
    write(conn)
    conn.tpc_prepare()
    conn.close()
    assert keys(observer) == []
    xid = next(x for x in observer.tpc_recover() if x.gtrid == "order-1")
    if outcome == "commit prepared":
        observer.tpc_commit(xid)
        assert keys(observer) == queued(observer) == ["order-1"]
    else:
        observer.tpc_rollback(xid)
        assert keys(observer) == queued(observer) == []


@both_ways
def test_autocommit_is_refused_unless_allowed(
    conn: Connection, observer: Connection, write: Callable[..., None]
) -> None:
    conn.autocommit = True
    with pytest.raises(TransactionStateError, match=r"in autocommit.*conn\.transaction"):
        write(conn)
    assert keys(observer) == []
    write(conn, allow_autocommit=True)
    assert conn.info.transaction_status == TransactionStatus.IDLE
    assert keys(observer) == ["order-1"]


@both_ways
def test_explicit_transaction_of_an_autocommit_connection_is_one(
    conn: Connection, observer: Connection, write: Callable[..., None]
) -> None:
    conn.autocommit = True
    with conn.transaction():
        write(conn, "a")
        assert keys(observer) == []
    conn.execute("begin")
    write(conn, "b")
    assert keys(observer) == ["a"]
    conn.execute("rollback")
    assert keys(observer) == ["a"]


@both_ways
def test_failed_transaction_is_refused(conn: Connection, write: Callable[..., None]) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        conn.execute("select 1 / 0")
    with pytest.raises(TransactionStateError, match="failed already"):
        write(conn)
    conn.rollback()
    write(conn)


@both_ways
def test_closed_connection_and_cursor_are_refused(
    outbox_url: str, conn: Connection, write: Callable[..., None]
) -> None:
    cursor = conn.cursor()
    cursor.close()
    with pytest.raises(TransactionStateError, match="cursor is closed"):
        write(cursor)
    other = psycopg.connect(outbox_url)
    cursor = other.cursor()
    other.close()
    for target in (other, cursor):
        with pytest.raises(TransactionStateError, match="connection is closed"):
            write(target)


@both_ways
def test_busy_connection_is_refused(conn: Connection, write: Callable[..., None]) -> None:
    with conn.cursor().copy("copy (select 1) to stdout") as copy:
        with pytest.raises(TransactionStateError, match="in the middle of another command"):
            write(conn)
        assert [bytes(row) for row in copy] == [b"1\n"]
    for _ in conn.cursor().stream("select generate_series(1, 3)"):
        with pytest.raises(TransactionStateError, match="in the middle of another command"):
            write(conn)
    write(conn)


@both_ways
@pytest.mark.parametrize("target", [None, "postgresql://x", 7, object(), psycopg.Connection])
def test_what_is_no_connection_is_refused(target: object, write: Callable[..., None]) -> None:
    with pytest.raises(TransactionStateError, match="expected a psycopg connection"):
        write(target)


class _Wrapper:
    """As Django's connection: the real one inside."""

    connection = None


class _Fairy:
    driver_connection = None


class _Pool:
    def getconn(self) -> None: ...


@pytest.mark.parametrize(
    ("target", "hint"),
    [(_Wrapper(), "Django"), (_Fairy(), "SQLAlchemy"), (_Pool(), "from the pool")],
)
def test_wrapped_connections_get_a_hint(target: object, hint: str) -> None:
    with pytest.raises(TransactionStateError, match=hint):
        enqueue_singly(target)


@both_ways
def test_named_cursor_is_refused(conn: Connection, write: Callable[..., None]) -> None:
    with (
        conn.cursor(name="many") as cursor,
        pytest.raises(TransactionStateError, match="named"),
    ):
        write(cursor)


@both_ways
def test_read_only_transaction_is_refused(conn: Connection, write: Callable[..., None]) -> None:
    conn.read_only = True
    with pytest.raises(TransactionStateError, match="read-only"):
        write(conn)


@both_ways
def test_cursors_rows_and_settings_of_the_caller_are_left_alone(
    conn: Connection, observer: Connection, write: Callable[..., None]
) -> None:
    cursor = conn.cursor(row_factory=dict_row)
    cursor.execute("select generate_series(1, 3) as n")
    for row in cursor:
        write(cursor, f"order-{row['n']}")
    conn.commit()
    assert keys(observer) == ["order-1", "order-2", "order-3"]


@both_ways
def test_row_factories_cursor_factories_and_adapters_do_not_matter(
    outbox_url: str, observer: Connection, write: Callable[..., None]
) -> None:
    class Shout(Loader):
        def load(self, data: Any) -> str:
            return bytes(data).decode().upper()

    for number, factory in enumerate((psycopg.RawCursor, psycopg.ClientCursor)):
        with psycopg.connect(
            outbox_url, row_factory=class_row(Message), cursor_factory=factory
        ) as c:
            c.adapters.register_dumper(str, StrDumper)
            c.adapters.register_loader("int8", Shout)
            c.adapters.register_loader("timestamptz", Shout)
            c.adapters.register_dumper(dict, JsonbDumper)
            write(c, f"order-{number}")
            write(c.cursor(), f"order-{number}")
    assert keys(observer) == ["order-0", "order-1"]


@both_ways
def test_pipeline_mode(conn: Connection, observer: Connection, write: Callable[..., None]) -> None:
    with conn.pipeline():
        conn.execute("create temporary table business (id integer) on commit drop")
        write(conn, "a")
        write(conn, "a")
        conn.execute("insert into business values (1)")
    conn.commit()
    conn.autocommit = True
    with conn.pipeline(), pytest.raises(TransactionStateError, match="autocommit"):
        write(conn, "b")
    with conn.pipeline(), conn.transaction():
        write(conn, "c")
        assert keys(observer) == ["a"]
    assert keys(observer) == ["a", "c"]


@both_ways
def test_aborted_pipeline_is_refused(conn: Connection, write: Callable[..., None]) -> None:
    errors: list[Exception] = []
    with contextlib.suppress(psycopg.Error), conn.pipeline():
        conn.execute("select 1 / 0")
        try:
            write(conn)
        except (TransactionStateError, psycopg.Error) as error:
            errors.append(error)
    assert len(errors) == 1
    conn.rollback()
    write(conn)


@both_ways
def test_statement_of_another_thread_is_not_disturbed(
    conn: Connection, outbox_url: str, observer: Connection, write: Callable[..., None]
) -> None:
    """Two connections in two threads: nothing is shared between them."""
    errors: list[BaseException] = []

    def work(name: str) -> None:
        try:
            with psycopg.connect(outbox_url) as mine:
                for number in range(20):
                    write(mine, f"{name}-{number}")
        except BaseException as error:  # noqa: BLE001 - reported by the main thread
            errors.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(keys(observer)) == 60


@both_ways
def test_lost_connection_reaches_the_callers_own_retry(
    conn: Connection, observer: Connection, write: Callable[..., None]
) -> None:
    write(conn, "a")
    observer.execute("select pg_terminate_backend(%s)", [conn.info.backend_pid])
    with pytest.raises(psycopg.OperationalError):
        write(conn, "b")
    with pytest.raises(TransactionStateError, match="closed"):
        write(conn, "b")
    assert keys(observer) == []


@pytest.mark.parametrize("schema", ["nowhere", "pg_catalog", ""])
def test_schema_without_outbox_is_named(conn: Connection, schema: str) -> None:
    with pytest.raises(SchemaError, match="schema"):
        enqueue_singly(conn, schema=schema)
