from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import QueryParams

from bridge.console.filters import Cursor, MessageFilter
from bridge.lifecycle import Status

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
TEXT = st.text(min_size=1, max_size=50).map(str.strip).filter(lambda t: t and "\0" not in t)


def parse(query: str) -> MessageFilter:
    parameters = QueryParams(query)
    return MessageFilter.parse(dict(parameters), parameters.getlist("status"), NOW)


@given(
    statuses=st.sets(st.sampled_from(list(Status))),
    destination=st.none() | TEXT,
    key=st.none() | TEXT,
    at=st.none() | st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)),  # noqa: DTZ001
)
def test_a_filter_survives_its_url(
    statuses: set[Status], destination: str | None, key: str | None, at: datetime | None
) -> None:
    wanted = MessageFilter(
        statuses=tuple(statuses),
        destination=destination,
        key=key,
        created_from=at.replace(tzinfo=UTC, microsecond=0) if at else None,
    )
    assert parse(wanted.query()) == wanted


def test_times_may_be_spans_back_from_now() -> None:
    assert parse("from=15m").created_from == NOW - timedelta(minutes=15)
    assert parse("from=2h&to=1d").created_to == NOW - timedelta(days=1)
    assert parse("from=2026-02-01T10:00").created_from == datetime(2026, 2, 1, 10, tzinfo=UTC)


def test_what_cannot_be_read_is_said() -> None:
    for query in ("from=yesterday", "trace=xyz", "status=FAILD", "key=" + "x" * 400, "key=%00"):
        assert parse(query).problems, query
    assert not parse("status=").problems


def test_a_pattern_reaches_sql_escaped() -> None:
    assert parse("key=a_b%25*").like_key == r"a\_b\%%"
    assert parse("key=a_b").like_key is None


@given(st.integers(0, 2**63 - 1), st.none() | st.datetimes(datetime(1971, 1, 1)))  # noqa: DTZ001
def test_a_cursor_survives_its_url(outbox_id: int, at: datetime | None) -> None:
    cursor = Cursor(outbox_id, at.replace(tzinfo=UTC) if at else None)
    assert Cursor.parse(str(cursor)) == cursor


def test_a_broken_cursor_is_none() -> None:
    for text in ("x", "1.x", "99999999999999999999", "1.99999999999999999999999"):
        assert Cursor.parse(text) is None
