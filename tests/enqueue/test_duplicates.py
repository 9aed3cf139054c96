"""A key enqueued twice: absorbed, or refused where it stands for another event."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge import (
    DuplicateKeyMismatch,
    EnqueueResult,
    Message,
    enqueue,
    enqueue_many,
    enqueue_steps,
)
from bridge.duplicates import _same_json
from tests.enqueue.messages import fields, keys
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

Connection = psycopg.Connection[tuple[Any, ...]]
Write = Any


def singly(conn: Connection, **arguments: Any) -> EnqueueResult:
    options = {n: arguments.pop(n) for n in ("on_duplicate", "ignore") if n in arguments}
    return enqueue(conn, **{**fields(), "payload": {"a": 1}, **arguments}, **options)


def in_bulk(conn: Connection, **arguments: Any) -> EnqueueResult:
    options = {n: arguments.pop(n) for n in ("on_duplicate", "ignore") if n in arguments}
    message = Message(**{**fields(), "payload": {"a": 1}, **arguments})
    others = [Message(**fields(f"{n}-other"), payload={}) for n in "az"]
    return enqueue_many(conn, [others[0], message, others[1]], **options)[1]


both_ways = pytest.mark.parametrize("write", [singly, in_bulk])


@both_ways
@pytest.mark.parametrize("status", ["PENDING", "PROCESSING", "SENT", "FAILED", "CANCELLED"])
def test_known_key_is_absorbed_whatever_became_of_it(
    conn: Connection, write: Write, status: str
) -> None:
    first = write(conn)
    assert first == EnqueueResult(first.outbox_id, created=True, differs=False)
    conn.commit()
    conn.execute("update app_outbox set status = %s", [status])
    conn.commit()
    assert write(conn) == EnqueueResult(first.outbox_id, created=False, differs=False)


@both_ways
@pytest.mark.parametrize("policy", ["error", "strict"])
@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        ({"destination": "refunds"}, "destination is 'refunds' here and 'orders' there"),
        ({"event_type": "order.paid"}, "event_type is 'order.paid' here"),
        ({"ordering_key": "o"}, "ordering_key is 'o' here and None there"),
    ],
)
def test_careless_key_is_refused(
    conn: Connection, write: Write, policy: str, other: dict[str, str], complaint: str
) -> None:
    first = write(conn)
    before = keys(conn)
    with pytest.raises(DuplicateKeyMismatch, match=rf"'order-1'.*{first.outbox_id}: {complaint}"):
        write(conn, on_duplicate=policy, **other)
    assert keys(conn) == before
    assert conn.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
    absorbed = write(conn, on_duplicate="absorb", **other)
    assert absorbed == EnqueueResult(first.outbox_id, created=False, differs=True)


@both_ways
@pytest.mark.parametrize(
    "payload", [{"a": 2}, {"a": True}, {"a": "1"}, {}, [1], None, "null", {"a": 1, "b": 1}]
)
def test_other_payload_is_told_and_refused_when_strict(
    conn: Connection, write: Write, payload: Any
) -> None:
    first = write(conn)
    for policy in ("error", "absorb"):
        assert write(conn, payload=payload, on_duplicate=policy) == EnqueueResult(
            first.outbox_id, created=False, differs=True
        )
    with pytest.raises(DuplicateKeyMismatch, match="payload differs"):
        write(conn, payload=payload, on_duplicate="strict")
    with pytest.raises(DuplicateKeyMismatch, match=r"content_type.*payload differs"):
        write(conn, payload=b'{"a":1}', content_type="application/x-p", on_duplicate="strict")


@both_ways
@pytest.mark.parametrize("payload", [' {"a": 1} ', b'{"a": 0, "a": 1.0}', {"a": 1.0}])
def test_strict_compares_as_json(conn: Connection, write: Write, payload: Any) -> None:
    write(conn)
    assert not write(conn, payload=payload, on_duplicate="strict").differs


@both_ways
def test_ignored_fields_do_not_count(conn: Connection, write: Write) -> None:
    write(conn, payload={"a": 1, "eventAt": 1, "inner": {"eventAt": 1}})
    later = {"a": 1, "eventAt": 2, "inner": {"eventAt": 1}}
    assert not write(conn, payload=later, on_duplicate="strict", ignore=["eventAt"]).differs
    assert write(conn, payload=later).differs
    inner = {"a": 1, "eventAt": 1, "inner": {"eventAt": 2}}
    with pytest.raises(DuplicateKeyMismatch):
        write(conn, payload=inner, on_duplicate="strict", ignore=["eventAt"])


@both_ways
def test_headers_times_and_retries_never_count(conn: Connection, write: Write) -> None:
    write(conn, headers={"a": "1"})
    again = write(conn, headers={"a": "2"}, max_retry_count=9, on_duplicate="strict")
    assert not again.differs


@both_ways
def test_raw_payloads_and_tombstones_are_compared(conn: Connection, write: Write) -> None:
    raw: dict[str, Any] = {"payload": b"\x00\x01", "content_type": "application/x-p"}
    write(conn, message_key="raw", **raw)
    assert not write(conn, message_key="raw", **raw, on_duplicate="strict").differs
    assert write(conn, message_key="raw", **{**raw, "content_type": "application/x-q"}).differs
    assert write(conn, message_key="raw", **{**raw, "payload": b"\x00"}).differs
    write(conn, message_key="gone", payload=None)
    assert not write(conn, message_key="gone", payload=None, on_duplicate="strict").differs


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("1", "1.0", True),
        ("100", "1e2", True),
        ("-0", "0", True),
        ("123456789012345678901234567890", "123456789012345678901234567891", False),
        ("0.1", "0.10000000000000000001", False),
        ("9" * 5000, "9" * 4999 + "8", False),
        ("true", "1", False),
        ("false", "0", False),
        ("null", "false", False),
        ('"1"', "1", False),
        ("[1,2]", "[2,1]", False),
        ("[1]", "[1,1]", False),
        ("[]", "{}", False),
        ('{"a":1,"b":2}', '{"b":2,"a":1}', True),
        ('{"a":1,"a":2}', '{"a":2}', True),
        ('"\\u00e9"', '"é"', True),
        ("[" * 900 + "]" * 900, " " + "[" * 900 + "]" * 900, True),
        ("[" * 5000 + "]" * 5000, " " + "[" * 5000 + "]" * 5000, False),
    ],
)
def test_json_is_compared_as_jsonb_compares_it(left: str, right: str, *, same: bool) -> None:
    assert _same_json(left.encode(), right.encode(), ()) is same
    assert _same_json(right.encode(), left.encode(), ()) is same


@both_ways
@pytest.mark.parametrize("outcome", ["commit", "rollback"])
@pytest.mark.parametrize("same", [True, False])
def test_second_writer_waits_for_the_first_and_sees_the_right_answer(
    conn: Connection,
    observer: Connection,
    outbox_url: str,
    write: Callable[..., EnqueueResult],
    outcome: str,
    *,
    same: bool,
) -> None:
    first = singly(conn, message_key="order-1")
    answers: list[EnqueueResult | BaseException] = []

    def second() -> None:
        with psycopg.connect(outbox_url, application_name="second writer") as other:
            try:
                other_fields = {} if same else {"event_type": "order.paid"}
                answers.append(write(other, **other_fields))
            except DuplicateKeyMismatch as error:
                answers.append(error)

    thread = threading.Thread(target=second)
    thread.start()
    waits = (
        "select count(*) from pg_stat_activity where application_name = 'second writer'"
        " and wait_event_type = 'Lock'"
    )
    wait_until(lambda: observer.execute(waits).fetchone() == (1,), "the second writer waits")
    assert answers == []
    getattr(conn, outcome)()
    thread.join()
    (answer,) = answers
    if outcome == "rollback":
        assert isinstance(answer, EnqueueResult)
        assert answer.created
    elif same:
        assert answer == EnqueueResult(first.outbox_id, created=False, differs=False)
    else:
        assert isinstance(answer, DuplicateKeyMismatch)
        assert keys(observer) == ["order-1"]


@both_ways
@pytest.mark.parametrize("level", ["REPEATABLE_READ", "SERIALIZABLE"])
def test_invisible_winner_is_a_serialization_failure(
    conn: Connection, observer: Connection, write: Write, level: str
) -> None:
    """The caller's own retry of the transaction is the right answer, and it works."""
    conn.isolation_level = psycopg.IsolationLevel[level]
    conn.execute("select count(*) from app_outbox")
    enqueue(observer, **fields(), payload={"a": 1}, allow_autocommit=True)
    with pytest.raises(psycopg.errors.SerializationFailure):
        write(conn)
    conn.rollback()
    assert not write(conn).created
    conn.commit()


@both_ways
def test_row_that_vanishes_while_we_look_is_inserted_after_all(
    conn: Connection, observer: Connection, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue(observer, **fields(), payload={}, allow_autocommit=True)
    load = enqueue_steps._statement

    def loading(name: str, schema: str) -> bytes:
        if name == "find_messages":
            observer.execute("delete from app_outbox where message_key = 'order-1'")
        return load(name, schema)

    monkeypatch.setattr(enqueue_steps, "_statement", loading)
    assert write(conn).created
