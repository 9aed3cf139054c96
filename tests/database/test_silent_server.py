"""A server that is gone without a word: TCP says it lives, and nothing answers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import pytest

from bridge.database.session import ConnectionLost, Session
from bridge.relay.outages import DatabaseState
from tests.fixtures.postgres import on_one_server
from tests.fixtures.proxy import Proxy
from tests.fixtures.relays import PATIENCE, assert_database_told_once, assert_places_hold
from tests.fixtures.waiting import wait_until

SWITCHES = {"closed": False, "exceptions": []}

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.kafka import ConsumeFunction, NewTopicFunction
    from tests.fixtures.relays import Outbox, StartRelayFunction

pytestmark = on_one_server


@pytest.fixture
def proxy(database_url: str) -> Iterator[Proxy]:
    with Proxy(urlsplit(database_url).port or 0) as made:
        yield made


def through(proxy: Proxy, url: str) -> str:
    parts = urlsplit(url)
    netloc = f"{parts.username}:{parts.password}@127.0.0.1:{proxy.port}"
    return urlunsplit(parts._replace(netloc=netloc))


def test_a_statement_that_is_not_answered_ends_and_the_session_comes_back(
    database_url: str, proxy: Proxy
) -> None:
    state = DatabaseState()
    session = Session(
        through(proxy, database_url),
        schema="public",
        stage="claim",
        relay_name="r",
        lock_timeout=1,
        observer=state,
        answer_timeout=3.0,
    )
    session.open()
    proxy.black_hole()
    with pytest.raises(ConnectionLost):
        session.rows("find_due", SWITCHES)
    proxy.pass_on()
    assert session.reopen(threading.Event())
    assert session.rows("find_due", SWITCHES) == [(False,)]
    assert not session.cut()  # nobody waits
    state.stop()
    session.close()


def test_a_relay_outlives_a_black_hole_between_it_and_the_database(
    *,
    outbox: Outbox,
    database_url: str,
    proxy: Proxy,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
) -> None:
    topic = new_topic()
    relay = start_relay(
        env={"OUTBOX_BRIDGE_DATABASE_URL": through(proxy, database_url)},
        relay_lease=15,
        relay_lease_margin=2,
        relay_heartbeat_interval=2,
        kafka_message_timeout_ms=8000,
    )
    outbox.wait_for("SENT", outbox.add(100, topic, prefix="before"))
    proxy.black_hole()
    outbox.add(100, topic, prefix="within")
    relay.wait_for_event("the database does not answer")
    relay.wait_for_event("database lost")
    proxy.pass_on()
    outbox.add(100, topic, prefix="after")
    rows = outbox.wait_all_sent(2 * PATIENCE)
    assert_places_hold(rows, consume(topic))
    assert_database_told_once(relay)
    relay.stop()


def test_a_listening_connection_that_hears_nothing_does_not_stop_polling(
    outbox: Outbox, start_relay: StartRelayFunction, new_topic: NewTopicFunction
) -> None:
    """graphile/worker#541, pg-boss#850: "connected", and no notification ever came.

    Here none is sent; whatever the reason, the next look comes after `relay.sleep`.
    """
    start_relay(relay_sleep=0.5)
    topic = new_topic()
    outbox.execute("set outbox_bridge.notify = 'off'")
    for number in range(3):
        wait_until(
            lambda: outbox.value(
                "select exists (select from pg_locks where locktype = 'advisory' and objid = 0 "
                "and objsubid = 2 and granted and mode = 'ExclusiveLock' and database = (select "
                "oid from pg_database where datname = current_database()))"
            ),
            "the relay sleeps",
            PATIENCE,
        )
        outbox.wait_for("SENT", outbox.add(1, topic, prefix=f"m{number}"))
