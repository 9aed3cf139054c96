"""What `bridge.enqueue` promises, every other way into the outbox promises too."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import bridge
from bridge import (
    DuplicateKeyMismatch,
    EnqueueError,
    EnqueueResult,
    InvalidMessageError,
    Message,
    TransactionStateError,
)
from bridge.errors import OutboxError, SchemaError
from bridge.telemetry import names
from tests.enqueue.messages import fields, keys, queued
from tests.fixtures.postgres import on_one_server
from tests.integrations.ways import WAYS, Undo, Way

if TYPE_CHECKING:
    from collections.abc import Iterator

Connection = psycopg.Connection[tuple[Any, ...]]

pytestmark = on_one_server


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, outbox_url: str) -> Iterator[Way]:
    opened = WAYS[request.param](outbox_url)
    yield opened
    opened.close()


def test_committed_with_the_business_data(way: Way, observer: Connection) -> None:
    observer.execute("create table if not exists business (id integer)")
    way.execute("insert into business values (1)")
    first = way.enqueue(**fields("a"), payload={})
    assert first == EnqueueResult(first.outbox_id, created=True, differs=False)
    assert keys(observer) == []
    way.commit()
    assert keys(observer) == queued(observer) == ["a"]
    assert observer.execute("select * from business").fetchall() == [(1,)]
    observer.execute("drop table business")


def test_rolled_back_with_the_business_data(way: Way, observer: Connection) -> None:
    way.enqueue(**fields("a"), payload={})
    way.enqueue_many([Message(**fields("b"), payload={})])
    way.rollback()
    way.enqueue(**fields("c"), payload={})
    way.commit()
    assert keys(observer) == queued(observer) == ["c"]


def test_savepoints_take_it_back_or_keep_it(way: Way, observer: Connection) -> None:
    way.enqueue(**fields("a"), payload={})
    with way.savepoint():
        way.enqueue(**fields("b"), payload={})
        with way.savepoint():
            way.enqueue_many([Message(**fields("c"), payload={})])
            raise Undo
    with way.savepoint():
        way.enqueue(**fields("c"), payload={})
        raise Undo
    with way.savepoint():
        way.enqueue(**fields("c"), payload={})
    way.commit()
    assert keys(observer) == queued(observer) == ["a", "b", "c"]


def test_every_field_is_stored_as_bridge_enqueue_stores_it(way: Way, observer: Connection) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    contents: list[dict[str, Any]] = [
        {"payload": {"a": [1, None, 2.5], "text": "ä😀 100% :name $1 %s %(x)s ' \\ \""}},
        {"payload": b' {"kept": "byte for byte"} ', "content_type": None},
        {"payload": b"\x00\xff", "content_type": "application/x-p"},
        {"payload": None},
        {
            "payload": [],
            "headers": {"h": "ä :x $1 %"},
            "ordering_key": "o",
            "not_before": later,
            "max_retry_count": 0,
        },
    ]
    with psycopg.connect(observer.info.dsn, password=observer.info.password) as plain:
        for number, content in enumerate(contents):
            bridge.enqueue(plain, **fields(f"plain-{number}"), **content)
    for number, content in enumerate(contents):
        way.enqueue(**fields(f"one-{number}"), **content)
    way.enqueue_many(
        [Message(**fields(f"many-{number}"), **content) for number, content in enumerate(contents)]
    )
    way.commit()
    columns = (
        "headers, payload_json::text, payload_bytes, content_type, ordering_key, "
        "max_retry_count, date_trunc('milliseconds', next_run_at - created_at) > '1 min'"
    )
    stored = {
        prefix: observer.execute(
            f"select {columns} from app_outbox where message_key like '{prefix}-%'"
            " order by outbox_id".encode()
        ).fetchall()
        for prefix in ("plain", "one", "many")
    }
    assert len(stored["plain"]) == len(contents)
    assert stored["one"] == stored["many"] == stored["plain"]
    (due,) = observer.execute(
        "select count(*) from app_outbox where next_run_at = %s", [later]
    ).fetchall()
    assert due == (3,)


def test_known_key_is_absorbed(way: Way) -> None:
    first = way.enqueue(**fields(), payload={"a": 1})
    way.commit()
    assert way.enqueue(**fields(), payload={"a": 1.0}) == EnqueueResult(
        first.outbox_id, created=False, differs=False
    )
    assert way.enqueue(**fields(), payload={"a": 2}).differs
    assert not way.enqueue(
        **fields(), payload={"a": 2}, on_duplicate="strict", ignore=["a"]
    ).differs
    assert way.enqueue(**fields(destination="r"), payload={}, on_duplicate="absorb").differs
    way.enqueue(**fields("raw"), payload=b"\x00", content_type="application/x-p")
    raw = {"payload": b"\x00", "content_type": "application/x-p", "on_duplicate": "strict"}
    assert not way.enqueue(**fields("raw"), **raw).differs


def test_careless_key_is_refused_and_the_transaction_goes_on(
    way: Way, observer: Connection
) -> None:
    way.enqueue(**fields("a"), payload={"a": 1})
    with pytest.raises(DuplicateKeyMismatch, match=r"'a'.*destination is 'refunds' here"):
        way.enqueue(**fields("a", destination="refunds"), payload={"a": 1})
    with pytest.raises(DuplicateKeyMismatch, match="payload differs"):
        way.enqueue(**fields("a"), payload={"a": 2}, on_duplicate="strict")
    with pytest.raises(DuplicateKeyMismatch, match="event_type"):
        way.enqueue_many(
            [
                Message(**fields("x"), payload={}),
                Message(**fields("a", event_type="other"), payload={}),
            ]
        )
    way.enqueue(**fields("b"), payload={})
    way.commit()
    assert keys(observer) == ["a", "b"]


def test_many_keep_the_order_given(way: Way, observer: Connection) -> None:
    assert way.enqueue_many([]) == []
    way.enqueue(**fields("m"), payload={"n": "m"})
    given = ["z", "a", "m", "z", "k"]
    results = way.enqueue_many([{**fields(key), "payload": {"n": key}} for key in given])
    assert [result.created for result in results] == [True, True, False, False, True]
    assert results[0].outbox_id == results[3].outbox_id
    way.commit()
    assert keys(observer) == ["m", "z", "a", "k"]


def test_unusable_message_is_refused_before_anything_is_written(
    way: Way, observer: Connection
) -> None:
    with pytest.raises(InvalidMessageError, match="message_key is empty"):
        way.enqueue(**fields(""), payload={})
    with pytest.raises(InvalidMessageError, match=r"NaN|nan"):
        way.enqueue(**fields("a"), payload={"x": float("nan")})
    with pytest.raises(InvalidMessageError, match=r"messages\[1\]"):
        way.enqueue_many([Message(**fields("a"), payload={}), {"message_key": "b"}])
    with pytest.raises(InvalidMessageError, match="max_payload_bytes"):
        way.enqueue(**fields("a"), payload={"a": "b"}, max_payload_bytes=3)
    with pytest.raises(InvalidMessageError, match="on_duplicate"):
        way.enqueue(**fields("a"), payload={}, on_duplicate="ignore")
    with pytest.raises(TypeError, match="misspelt"):
        way.enqueue(**fields("a"), payload={}, misspelt=1)
    way.enqueue(**fields("b"), payload={})
    way.commit()
    assert keys(observer) == ["b"]


def test_missing_schema_is_named(way: Way) -> None:
    with pytest.raises(SchemaError, match=r'schema "elsewhere" has no outbox.*migrate up'):
        way.enqueue(**fields("a"), payload={}, schema="elsewhere")
    way.rollback()
    with pytest.raises(SchemaError, match="names with pg_ belong to PostgreSQL"):
        way.enqueue(**fields("a"), payload={}, schema="pg_x")


def test_failed_and_read_only_transactions_are_refused(way: Way, observer: Connection) -> None:
    with pytest.raises(Exception, match="division by zero"):
        way.execute("select 1 / 0")
    with pytest.raises(TransactionStateError, match=r"failed already|cannot be used"):
        way.enqueue(**fields("a"), payload={})
    way.rollback()
    way.execute("set transaction read only")
    with pytest.raises(TransactionStateError, match="read-only"):
        way.enqueue(**fields("a"), payload={})
    way.rollback()
    assert keys(observer) == []


def test_role_without_the_right_is_told(way: Way, observer: Connection) -> None:
    observer.execute("drop role if exists nobody_at_all")
    observer.execute("create role nobody_at_all")
    way.execute("set local role nobody_at_all")
    with pytest.raises(EnqueueError, match=r"may not enqueue.*outbox_writer"):
        way.enqueue(**fields("a"), payload={})
    way.rollback()
    observer.execute("drop role nobody_at_all")


def test_serialization_failure_reaches_the_callers_own_retry(
    way: Way, observer: Connection
) -> None:
    way.execute("set transaction isolation level repeatable read")
    way.execute("select 1 from app_outbox")
    bridge.enqueue(observer, **fields("a"), payload={}, allow_autocommit=True)
    with pytest.raises(Exception, match="could not serialize") as caught:
        way.enqueue(**fields("a"), payload={})
    assert not isinstance(caught.value, OutboxError)
    way.rollback()
    assert not way.enqueue(**fields("a"), payload={}).created


def test_search_path_does_not_matter(way: Way, observer: Connection) -> None:
    way.execute("set local search_path = ''")
    way.enqueue(**fields("a"), payload={"a": 1}, headers={"h": "x"})
    way.enqueue_many([Message(**fields(key), payload={"a": 1}) for key in "ab"])
    way.commit()
    assert keys(observer) == ["a", "b"]


def test_callers_trace_travels_in_the_row(way: Way, observer: Connection) -> None:
    span = TracerProvider(shutdown_on_exit=False).get_tracer("shop").start_span("business")
    with trace.use_span(span):
        way.enqueue(**fields("a"), payload={})
        way.enqueue_many([Message(**fields("b"), payload={}, headers={"h": "x"})])
    way.commit()
    trace_id = f"00-{span.get_span_context().trace_id:032x}-"
    rows = observer.execute("select headers from app_outbox order by outbox_id").fetchall()
    assert [headers["traceparent"].startswith(trace_id) for (headers,) in rows] == [True, True]


def test_each_message_has_a_create_span_of_its_own(
    way: Way, observer: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    # The API lets nobody replace a provider, not even a test.
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", provider)
    way.enqueue(**fields("a"), payload={})
    way.enqueue_many([Message(**fields("b"), payload={})])
    with pytest.raises(SchemaError):
        way.enqueue(**fields("c"), payload={}, schema="elsewhere")
    way.rollback()
    spans = [span for span in kept.get_finished_spans() if span.name == "create orders"]
    assert [(span.attributes or {})[names.OUTBOX_MESSAGE_KEY] for span in spans] == ["a", "b", "c"]
    assert [span.status.is_ok for span in spans] == [True, True, False]
