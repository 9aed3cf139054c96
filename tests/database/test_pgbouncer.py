"""Behind PgBouncer in transaction mode a relay works, and leaves nothing in others' sessions.

PgBouncer 1.18 knows no prepared statements: one that is prepared breaks at once.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge.database.session import BUSY, Session
from bridge.doctor.examination import DATABASE
from tests.fixtures.postgres import on_one_server
from tests.fixtures.relays import FAST_LEASE, PATIENCE, RANDOM_TEXT, assert_places_hold, ids_of
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.database.conftest import Pooler
    from tests.fixtures.cli import RunCliFunction
    from tests.fixtures.kafka import ConsumeFunction, NewTopicFunction
    from tests.fixtures.relays import Outbox, StartRelayFunction

pytestmark = on_one_server

OURS = (
    "lock_timeout",
    "statement_timeout",
    "idle_in_transaction_session_timeout",
    "default_transaction_isolation",
    "default_transaction_read_only",
    "enable_seqscan",
    "enable_hashjoin",
    "enable_mergejoin",
    "enable_bitmapscan",
    "jit",
)


def traces(url: str) -> list[tuple[Any, ...]]:
    """What differs from the server's defaults, or is left behind, in a session of the pooler's."""
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as other:
        return other.execute(
            """
            select name, setting from pg_settings where name = any(%s) and setting <> reset_val
            union all select 'prepared', statement from pg_prepared_statements
            union all select 'listens', c from pg_listening_channels() as c
            union all select 'advisory lock', pid::text from pg_locks
                where locktype = 'advisory' and database =
                    (select oid from pg_database where datname = current_database())
                and pid = pg_backend_pid()
            """,
            [list(OURS)],
        ).fetchall()


@pytest.fixture
def session(pooler: Pooler) -> Iterator[Session]:
    opened = Session(
        pooler.url, schema="public", stage="claim", relay_name="pooled", lock_timeout=0.1
    )
    opened.open()
    yield opened
    opened.close()


def test_a_relay_drains_through_the_pooler_and_leaves_no_trace(
    outbox: Outbox,
    pooler: Pooler,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
) -> None:
    topic = new_topic()
    relay = start_relay(
        env={"OUTBOX_BRIDGE_DATABASE_URL": pooler.url},
        relay_batch_rows=50,
        relay_inline_payload_bytes=1000,
    )
    large = outbox.value(RANDOM_TEXT, 3000)
    for number in range(5):
        outbox.add(300, topic, prefix=f"a{number}")
        outbox.add(50, topic, prefix=f"o{number}", ordering_key=f"k{number}")
        outbox.add(5, topic, prefix=f"l{number}", payload_json=large)
        assert traces(pooler.url) == []

    rows = outbox.wait_all_sent()

    records = consume(topic)
    assert_places_hold(rows, records)
    assert sorted(ids_of(records)) == [row.outbox_id for row in rows]
    assert outbox.query("select has_lock from app_outbox_relay") == [(False,)]
    for _ in range(5):
        assert traces(pooler.url) == []
    assert len(relay.events("behind a connection pooler")) == 1
    assert relay.events("database") == []
    relay.stop()
    outbox.assert_nothing_is_left_behind()


def test_a_new_row_is_found_by_polling(
    outbox: Outbox, pooler: Pooler, start_relay: StartRelayFunction, new_topic: NewTopicFunction
) -> None:
    # Would it sleep, it would sleep for an hour.
    start_relay(env={"OUTBOX_BRIDGE_DATABASE_URL": pooler.url}, relay_sleep=3600)
    topic = new_topic()
    for number in range(3):
        outbox.wait_for("SENT", outbox.add(1, topic, prefix=f"m{number}"))


def test_a_direct_url_keeps_lock_and_wake_up(
    outbox: Outbox, pooler: Pooler, start_relay: StartRelayFunction, new_topic: NewTopicFunction
) -> None:
    relay = start_relay(
        env={
            "OUTBOX_BRIDGE_DATABASE_URL": pooler.url,
            "OUTBOX_BRIDGE_DATABASE_DIRECT_URL": pooler.direct_url,
        },
        relay_sleep=3600,
    )
    topic = new_topic()
    assert outbox.query("select has_lock from app_outbox_relay") == [(True,)]
    wait_until(
        lambda: outbox.value(
            "select exists (select from pg_locks as l join pg_stat_activity as a using (pid) "
            "where l.locktype = 'advisory' and l.objid = 0 and l.objsubid = 2 "
            "and a.application_name like '%%/claim' and a.datname = current_database())"
        ),
        "the relay sleeps",
        PATIENCE,
    )
    outbox.wait_for("SENT", outbox.add(10, topic))
    assert relay.events("behind a connection pooler") == []
    relay.stop()


def test_a_killed_relay_without_lock_is_rescued_after_its_lease_and_not_before(
    outbox: Outbox, pooler: Pooler, start_relay: StartRelayFunction, new_topic: NewTopicFunction
) -> None:
    topic = new_topic()
    ids = outbox.add(40, topic)
    victim = start_relay(
        env={"OUTBOX_BRIDGE_DATABASE_URL": pooler.url},
        **{**FAST_LEASE, "relay_lease": 10},
        relay_settle_interval=3600,
    )
    outbox.wait_for("PROCESSING", ids)
    other = start_relay()
    # Long enough to be taken for dead by a lock that stays free.
    wait_until(
        lambda: outbox.value(
            "select heartbeat_at > started_at + interval '4 s' from app_outbox_relay "
            "where not has_lock"
        ),
        "the relay without lock has lived for a while beside the other",
        PATIENCE,
    )
    assert other.events("relay is gone") == []
    victim.process.kill()

    rows = outbox.wait_for("SENT", ids)

    assert {row.last_error_code for row in rows} == {"STUCK_PROCESSING"}
    assert other.wait_for_event("relay is gone")["why"] == "silent"
    other.stop()
    outbox.assert_nothing_is_left_behind()


def test_a_statement_has_its_settings_and_the_next_client_has_not(
    session: Session, pooler: Pooler
) -> None:
    assert session.is_pooled
    held = psycopg.connect(pooler.direct_url)
    held.execute("lock table app_outbox_relay")
    # The lock time-out of this very transaction; without it the statement would wait for ever.
    for _ in range(3):
        with pytest.raises(BUSY):
            session.rows(
                "beat_relay", {"relay_id": 1, "stopping": False, "has_lock": False, "failing": "{}"}
            )
    held.close()
    assert (
        session.rows(
            "beat_relay", {"relay_id": 1, "stopping": False, "has_lock": False, "failing": "{}"}
        )
        == []
    )
    assert traces(pooler.url) == []


def test_a_transaction_keeps_its_settings_and_rolls_back_as_a_whole(
    session: Session, pooler: Pooler
) -> None:
    def settings() -> dict[str, str]:
        return dict(
            session.connection.execute(
                "select name, setting from pg_settings where name = any(%s)", [list(OURS)]
            ).fetchall()
        )

    def register() -> dict[str, str]:
        session.rows(
            "register_relay",
            {
                "relay_name": "r",
                "host": "h",
                "pid": 1,
                "version": "v",
                "lease_seconds": 1,
                "has_lock": False,
            },
        )
        return settings()

    inside = session.in_transaction(register)
    assert (inside["lock_timeout"], inside["enable_seqscan"]) == ("100", "off")
    assert settings()["enable_seqscan"] == "on"

    def fail() -> None:
        register()
        raise KeyError

    with pytest.raises(KeyError):
        session.in_transaction(fail)
    with psycopg.connect(pooler.direct_url) as direct:
        assert direct.execute("select count(*) from app_outbox_relay").fetchone() == (1,)
    assert traces(pooler.url) == []


def test_the_roles_defaults_do_not_matter(session: Session, pooler: Pooler) -> None:
    with psycopg.connect(pooler.direct_url, autocommit=True) as direct:
        name = psycopg.sql.Identifier(direct.info.dbname)
        for setting in ("transaction_isolation = 'serializable'", "transaction_read_only = on"):
            direct.execute(psycopg.sql.SQL("alter database {} set default_" + setting).format(name))
        direct.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = "
            "current_database() and pid <> pg_backend_pid()"
        )
    fresh = Session(pooler.url, schema="public", stage="claim", relay_name="p", lock_timeout=0.1)
    fresh.open()
    assert (
        fresh.rows(
            "beat_relay", {"relay_id": 1, "stopping": False, "has_lock": False, "failing": "{}"}
        )
        == []
    )
    fresh.close()


def test_the_doctor_finds_the_pooler_and_leaves_no_trace_in_it(
    pooler: Pooler, run_cli: RunCliFunction
) -> None:
    broker = {"OUTBOX_BRIDGE_KAFKA_BOOTSTRAP_SERVERS": ""}
    through = {**broker, "OUTBOX_BRIDGE_DATABASE_URL": pooler.url}
    done = run_cli("doctor", *DATABASE, "--json", env=through, check=False)
    problems = [
        (one["check"], one["evidence"])
        for one in json.loads(done.stdout)["findings"]
        if one["verdict"] != "ok"
    ]
    assert [check for check, _ in problems] == ["wake-up"]
    assert "pooler stands between" in problems[0][1]
    assert traces(pooler.url) == []
    past = {**through, "OUTBOX_BRIDGE_DATABASE_DIRECT_URL": pooler.direct_url}
    run_cli("doctor", "wake-up", env=past)
    again = {**through, "OUTBOX_BRIDGE_DATABASE_DIRECT_URL": pooler.url}
    done = run_cli("doctor", "wake-up", env=again, check=False)
    assert "leads through a pooler, too" in done.stdout
