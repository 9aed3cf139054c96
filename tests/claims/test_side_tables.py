"""After anything that plain SQL or a relay does, the side tables say what the rows say."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.claims.outbox import count, faults, insert, unclaimed

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.relay.batch import Batch
    from tests.claims.desk import Desk

Step = tuple[Any, ...]

STATUSES = ["PENDING", "PROCESSING", "SENT", "FAILED", "CANCELLED"]
CLAIMS = ["claim_rows", "claim_rows_skipping"]
DESTINATIONS = ["orders", "invoices", "Ünïted"]
KEYS = [None, "k-1", "k-2"]
TIMES = [
    "now()",
    "now() - interval '1 hour'",
    "now() + interval '1 hour'",
    "'-infinity'",
    "'infinity'",
]

_status = st.sampled_from(STATUSES)
_destination = st.sampled_from(DESTINATIONS)
_key = st.sampled_from(KEYS)
_time = st.sampled_from(TIMES)
_which = st.tuples(st.integers(1, 4), st.integers(0, 3))
"""Rows whose id leaves this remainder."""

_inserts = st.tuples(st.just("insert"), st.integers(0, 4), _status, _destination, _key, _time)
_edits = st.one_of(
    st.tuples(st.just("set status"), _which, _status),
    st.tuples(st.just("set status and time sent"), _which, _status),
    st.tuples(st.just("set next_run_at"), _which, _time),
    st.tuples(st.just("set destination"), _which, _destination),
    st.tuples(st.just("set ordering_key"), _which, _key),
    st.tuples(st.just("set event_type"), _which, st.sampled_from(["a", "b"])),
    st.tuples(st.just("set last_error_code"), _which, st.sampled_from([None, "x", "y"])),
    st.tuples(st.just("set all"), _which, _status, _destination, _key, _time),
    st.tuples(st.just("delete"), _which),
)
_bulk = st.one_of(
    st.tuples(st.just("copy"), st.integers(1, 3), _status, _destination, _key),
    st.tuples(st.just("upsert"), _which, _status, _destination),
    st.tuples(st.just("absorb"), _which),
    st.tuples(st.just("truncate")),
)
_relay = st.one_of(
    st.tuples(st.just("claim"), st.integers(1, 5), st.sampled_from(CLAIMS)),
    st.tuples(st.just("claim ordered"), st.integers(1, 5)),
    st.tuples(st.just("settle"), st.integers(0, 3)),
    st.tuples(st.just("fail"), st.integers(0, 3), st.booleans()),
    st.tuples(st.just("release"), st.integers(0, 3)),
    st.tuples(st.just("rescue"), st.integers(0, 3)),
    st.tuples(st.just("die"), st.integers(0, 3)),
    st.tuples(st.just("claim suspect")),
    st.tuples(st.just("followers return")),
    st.tuples(st.just("roll up")),
    st.tuples(st.just("recount")),
)
_plain = st.one_of(_inserts, _inserts, _edits, _edits, _bulk, _relay, _relay)
_undone = st.tuples(
    st.just("rolled back"), st.lists(st.one_of(_inserts, _edits, _bulk), max_size=3)
)
_steps = st.lists(st.one_of(_plain, _plain, _plain, _undone), min_size=4, max_size=24)


@dataclass
class Player:
    """Plays steps; the relay's ones on the desk, everything else on a plain connection."""

    conn: psycopg.Connection[Any]
    desk: Desk
    batches: list[Batch] = field(default_factory=list)

    def play(self, step: Step) -> None:
        name, *arguments = step
        plays: dict[str, Callable[..., Any]] = {
            "insert": self.insert,
            "copy": self.copy,
            "upsert": self.upsert,
            "absorb": self.absorb,
            "truncate": lambda: self.conn.execute("truncate app_outbox"),
            "delete": lambda which: self.conn.execute(
                "delete from app_outbox where outbox_id %% %s = %s", which
            ),
            "claim": self.claim,
            "claim ordered": lambda rows: self.batches.append(self.desk.claim_ordered(rows=rows)),
            "settle": self.settle,
            "fail": self.fail,
            "release": lambda at: self.on_batch(at, self.desk.release),
            "rescue": lambda at: self.on_batch(at, self.desk.rescue, keep=True),
            "die": lambda at: self.on_batch(at, self.die, keep=True),
            "claim suspect": lambda: self.batches.append(self.desk.claim_suspect()),
            "followers return": lambda: self.desk.return_followers(1),
            "roll up": lambda: self.desk.session.run("roll_up_counters"),
            "recount": self.desk.reconciler.recount,
            "rolled back": self.undone,
            "set all": self.set_all,
        }
        if name in plays:
            plays[name](*arguments)
        else:
            self.edit(name, *arguments)

    def die(self, batch: Batch) -> None:
        self.desk.rescuer._end(batch.claim_id)  # type: ignore[arg-type]  # a UUID or its text

    def insert(self, rows: int, status: str, destination: str, key: str | None, time: str) -> None:
        insert(
            self.conn,
            rows,
            status=status,
            destination=destination,
            ordering_key=key,
            next_run_at=f"({time})::timestamptz",
        )

    def copy(self, rows: int, status: str, destination: str, key: str | None) -> None:
        unique = self.unique()
        columns = "message_key, event_type, destination, status, ordering_key"
        with self.conn.cursor().copy(f"copy app_outbox ({columns}) from stdin") as copy:
            for number in range(rows):
                copy.write_row((f"copied-{unique}-{number}", "a", destination, status, key))

    def upsert(self, which: tuple[int, int], status: str, destination: str) -> None:
        self.conn.execute(
            "insert into app_outbox (message_key, event_type, destination, status) "
            "select message_key, 'upserted', %s, %s from app_outbox where outbox_id %% %s = %s "
            "union all select 'fresh-' || %s, 'upserted', %s, %s "
            "on conflict (message_key) do update "
            "set status = excluded.status, destination = excluded.destination",
            [destination, status, *which, self.unique(), destination, status],
        )

    def absorb(self, which: tuple[int, int]) -> None:
        self.conn.execute(
            "insert into app_outbox (message_key, event_type, destination) "
            "select message_key, event_type, 'elsewhere' from app_outbox "
            "where outbox_id %% %s = %s on conflict do nothing",
            which,
        )

    def edit(self, name: str, which: tuple[int, int], value: str | None) -> None:
        column = name.removeprefix("set ")
        if column == "next_run_at":
            assignment: str = f"next_run_at = ({value})::timestamptz"
        elif column == "status and time sent":
            assignment = "status = %(value)s, sent_at = clock_timestamp()"
        else:
            assignment = f"{column} = %(value)s"
        self.conn.execute(
            f"update app_outbox set {assignment} where outbox_id %% %(divisor)s = %(remainder)s",
            {"value": value, "divisor": which[0], "remainder": which[1]},
        )

    def set_all(
        self, which: tuple[int, int], status: str, destination: str, key: str | None, time: str
    ) -> None:
        self.conn.execute(
            "update app_outbox set status = %s, destination = %s, ordering_key = %s, "
            f"next_run_at = ({time})::timestamptz where outbox_id %% %s = %s",
            [status, destination, key, *which],
        )

    def undone(self, steps: list[Step]) -> None:
        with self.conn.transaction(force_rollback=True):
            for step in steps:
                with contextlib.suppress(psycopg.errors.UniqueViolation), self.conn.transaction():
                    self.play(step)

    def claim(self, rows: int, statement: str) -> None:
        self.batches.append(self.desk.claim([*DESTINATIONS, "elsewhere"], rows, statement))

    def settle(self, at: int) -> None:
        self.on_batch(at, self.desk.settle, keep=True)

    def fail(self, at: int, final: bool) -> None:  # noqa: FBT001 - drawn by position
        def fail(batch: Batch) -> None:
            self.desk.fail(batch, final=final)
            self.desk.settlement.delete_claims([batch])

        self.on_batch(at, fail)

    def on_batch(self, at: int, work: Callable[[Batch], Any], *, keep: bool = False) -> None:
        if self.batches:
            batch = self.batches[at % len(self.batches)]
            work(batch)
            if not keep:
                self.batches.remove(batch)

    def unique(self) -> int:
        row = self.conn.execute("select nextval('app_outbox_outbox_id_seq')").fetchone()
        assert row is not None
        return int(row[0])


@pytest.mark.timeout(600)
@settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=_steps)
def test_side_tables_agree_with_the_rows_after_any_sequence_of_changes(
    conn: psycopg.Connection[Any], desk: Desk, steps: list[Step]
) -> None:
    player = Player(conn, desk)
    conn.execute("truncate app_outbox, app_outbox_claim")
    desk.take_all_lanes()
    for status in STATUSES:
        insert(conn, 2, status=status)
    # Settled by a relay, so with partition and offset.
    desk.settle(desk.claim())
    for played, step in enumerate(steps, 1):
        player.play(step)
        assert faults(conn) == {}, steps[:played]


def test_truncate_leaves_nothing_behind(conn: psycopg.Connection[Any], desk: Desk) -> None:
    for status in STATUSES:
        insert(conn, 3, status=status)
    desk.claim(rows=1)
    conn.execute("truncate app_outbox")
    assert [count(conn, f"app_outbox_{table}") for table in ("queue", "failed", "counter")] == [
        0,
        0,
        0,
    ]


def test_every_claimed_row_stands_in_the_claim_until_it_is_settled(
    conn: psycopg.Connection[Any], desk: Desk
) -> None:
    insert(conn, 10)
    insert(conn, 10, ordering_key="k")
    desk.take_all_lanes()
    batches = [desk.claim(rows=10), desk.claim_ordered(rows=10)]
    assert sum(len(batch.rows) for batch in batches) == 20
    assert unclaimed(conn) == []
    for batch in batches:
        assert desk.settle(batch) == 10
    assert count(conn, "app_outbox_claim") == 0


def test_roll_up_keeps_the_sums(conn: psycopg.Connection[Any], desk: Desk) -> None:
    conn.execute(
        "insert into app_outbox_counter (destination, status, delta, counted_at) "
        "select case n %% 2 when 0 then 'a' else 'b' end, 'SENT', n - 5, "
        "now() - n * %s * interval '1 second' from generate_series(1, 400) as n",
        [600],
    )
    query = (
        "select destination, status, sum(delta) from app_outbox_counter group by 1, 2 order by 1"
    )
    before = conn.execute(query).fetchall()
    for _ in range(2):
        desk.session.run("roll_up_counters")
        assert conn.execute(query).fetchall() == before
    recent, old = conn.execute(
        "select count(*) filter (where counted_at >= now() - interval '1 day'), "
        "count(*) filter (where counted_at < now() - interval '1 day') from app_outbox_counter"
    ).fetchone() or (0, 0)
    assert recent <= 146  # 10 minutes apart, so each keeps its minute
    assert old <= 2 * 3  # one for each day and destination


@pytest.mark.parametrize("statement", CLAIMS)
def test_stale_entries_are_thrown_away_by_the_claim(
    conn: psycopg.Connection[Any], desk: Desk, statement: str
) -> None:
    insert(conn, 5)
    conn.execute("update app_outbox set status = 'CANCELLED'")
    later = insert(conn, 5)
    conn.execute(
        "update app_outbox set next_run_at = now() + interval '1 day' where outbox_id = any(%s)",
        [later],
    )
    assert list(desk.claim(statement=statement).rows) == []
    assert count(conn, "app_outbox_queue") == 5
    assert faults(conn) == {}
