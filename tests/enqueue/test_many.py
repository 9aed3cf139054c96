"""`enqueue_many`: one statement, results in the order given, all or nothing."""

from __future__ import annotations

import random
import threading
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from bridge import (
    DuplicateKeyMismatch,
    EnqueueResult,
    InvalidMessageError,
    Message,
    enqueue,
    enqueue_many,
)
from tests.enqueue.messages import fields, keys, queued

Connection = psycopg.Connection[tuple[Any, ...]]


def message(key: str, **other: Any) -> Message:
    return Message(**{**fields(key), "payload": {"key": key}, **other})


def test_results_and_ids_follow_the_order_given(conn: Connection) -> None:
    given = ["m", "z", "a", "é", "Z", "😀", "b"]
    results = enqueue_many(conn, [message(key) for key in given])
    assert all(result.created for result in results)
    ids = [result.outbox_id for result in results]
    assert ids == sorted(ids)
    assert keys(conn) == queued(conn) == given
    rows = conn.execute("select outbox_id, payload_json->>'key' from app_outbox").fetchall()
    assert sorted(rows) == list(zip(ids, given, strict=True))


def test_rows_are_inserted_in_the_order_of_their_keys(conn: Connection) -> None:
    """The order in which the unique index is entered: two writers meet without a deadlock."""
    enqueue_many(conn, [message(key) for key in ["m", "z", "a", "Z", "é"]])
    rows = conn.execute("select message_key from app_outbox order by ctid").fetchall()
    assert [row[0] for row in rows] == ["Z", "a", "m", "z", "é"]


def test_two_writers_of_the_same_keys_do_not_deadlock(
    conn: Connection, observer: Connection, outbox_url: str
) -> None:
    names = [f"k-{number}" for number in range(200)]
    errors: list[BaseException] = []
    created: list[int] = []

    def work(seed: int) -> None:
        order = random.Random(seed)  # noqa: S311 - a shuffle that can be repeated
        try:
            with psycopg.connect(outbox_url) as mine:
                for _ in range(5):
                    order.shuffle(names_of[seed])
                    results = enqueue_many(mine, [message(key) for key in names_of[seed]])
                    created.append(sum(result.created for result in results))
                    mine.commit()
        except BaseException as error:  # noqa: BLE001 - reported by the main thread
            errors.append(error)

    names_of = {seed: list(names) for seed in range(4)}
    threads = [threading.Thread(target=work, args=(seed,)) for seed in names_of]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sum(created) == len(names)
    assert sorted(keys(observer)) == sorted(names)


def test_known_and_repeated_keys_are_absorbed_by_the_same_rules(conn: Connection) -> None:
    known = enqueue(conn, **fields("known"), payload={"key": "known"})
    results = enqueue_many(
        conn,
        [
            message("new"),
            message("known"),
            message("new"),
            message("known", payload={"key": "other"}),
            message("new", payload={"key": "other"}),
        ],
    )
    new = results[0].outbox_id
    assert results == [
        EnqueueResult(new, created=True, differs=False),
        EnqueueResult(known.outbox_id, created=False, differs=False),
        EnqueueResult(new, created=False, differs=False),
        EnqueueResult(known.outbox_id, created=False, differs=True),
        EnqueueResult(new, created=False, differs=True),
    ]


@pytest.mark.parametrize("autocommit", [False, True])
def test_one_refused_message_takes_all_back_and_the_transaction_lives(
    conn: Connection, *, autocommit: bool
) -> None:
    enqueue(conn, **fields("known"), payload={})
    conn.commit()
    conn.autocommit = autocommit
    batch = [message("a"), message("known", destination="refunds"), message("z")]
    with pytest.raises(DuplicateKeyMismatch, match="'known'"):
        enqueue_many(conn, batch, allow_autocommit=autocommit)
    assert keys(conn) == ["known"]
    enqueue_many(conn, [message("b")], allow_autocommit=autocommit)
    if not autocommit:
        conn.commit()
    assert keys(conn) == queued(conn) == ["known", "b"]


def test_careless_key_within_one_call_is_refused_before_anything_is_sent(conn: Connection) -> None:
    with pytest.raises(DuplicateKeyMismatch, match="earlier in this call"):
        enqueue_many(conn, [message("a"), message("a", destination="refunds")])
    assert conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    results = enqueue_many(
        conn, [message("a"), message("a", destination="refunds")], on_duplicate="absorb"
    )
    assert [result.differs for result in results] == [False, True]


def test_every_kind_of_message_in_one_call(conn: Connection) -> None:
    at = datetime(2031, 1, 1, tzinfo=UTC)
    results = enqueue_many(
        conn,
        (
            {**fields("json"), "payload": '{"a": "quote \\" and \\\\"}'},
            {**fields("raw"), "payload": b"\x00\xff", "content_type": "application/x-p"},
            {**fields("none"), "payload": None, "ordering_key": "o", "not_before": at},
            {**fields("NULL"), "payload": {}, "max_retry_count": 0, "headers": {"a": "NULL"}},
        ),
    )
    assert [result.created for result in results] == [True] * 4
    rows = conn.execute(
        "select message_key, payload_json::text, payload_bytes, content_type, ordering_key,"
        " max_retry_count, next_run_at = %s, headers from app_outbox order by outbox_id",
        [at],
    ).fetchall()
    assert rows == [
        ("json", '{"a": "quote \\" and \\\\"}', None, None, None, 5, False, {}),
        ("raw", None, b"\x00\xff", "application/x-p", None, 5, False, {}),
        ("none", None, None, None, "o", 5, True, {}),
        ("NULL", "{}", None, None, None, 0, False, {"a": "NULL"}),
    ]


def test_nothing_is_nothing(conn: Connection) -> None:
    assert enqueue_many(conn, []) == []
    assert enqueue_many(conn, iter(())) == []
    assert conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ("text", "messages must be a list"),
        (fields(), "messages must be a list"),
        ([7], r"messages\[0\]: expected Message or a mapping, not int"),
        ([{"message_key": "a"}], r"messages\[0\]: not the fields of a Message: missing"),
        ([{**fields(), "payload": 1, "topic": "x"}], "unexpected keyword argument 'topic'"),
    ],
)
def test_what_is_no_message_is_refused(conn: Connection, messages: Any, complaint: str) -> None:
    with pytest.raises(InvalidMessageError, match=complaint):
        enqueue_many(conn, messages)


def test_ten_thousand_messages(conn: Connection) -> None:
    results = enqueue_many(conn, (message(f"k-{number}") for number in range(10_000)))
    assert len({result.outbox_id for result in results}) == 10_000
    row = conn.execute("select count(*) from app_outbox_queue").fetchone()
    assert row == (10_000,)
