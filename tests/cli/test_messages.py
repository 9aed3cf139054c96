from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from bridge.errors import OperationError
from bridge.inspection import find_message, list_messages
from bridge.lifecycle import Status

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.cli import RunCliFunction

SAME = ("--type", "order.created", "--destination", "orders")


def rows(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as conn:
        return conn.execute(statement.encode()).fetchall()


def execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(statement.encode())


def fill(url: str, count: int, status: str = "PENDING", destination: str = "orders") -> None:
    execute(
        url,
        "insert into app_outbox (message_key, event_type, destination, payload_json, status) "
        f"select '{status}-{destination}-' || n, 'order.created', '{destination}', '{{}}', "
        f"'{status}' from generate_series(1, {count}) as n",
    )


def test_enqueue_prints_id_and_whether_it_was_created_or_absorbed(
    database_url: str, run_cli: RunCliFunction
) -> None:
    first = run_cli("enqueue", "--key", "k1", *SAME, "--payload", '{"a":  1}')
    again = run_cli("enqueue", "--key", "k1", *SAME, "--payload", '{"a":  1}', "--json")
    ((outbox_id, payload),) = rows(
        database_url, "select outbox_id, payload_json::text from app_outbox"
    )
    assert first.stdout == f"{outbox_id} created\n"
    assert json.loads(again.stdout) == {"outbox_id": outbox_id, "created": False, "differs": False}
    assert payload == '{"a":  1}', "kept byte for byte"


def test_enqueue_takes_every_field(
    database_url: str, run_cli: RunCliFunction, tmp_path: Path
) -> None:
    (tmp_path / "event.json").write_text('{"from": "file"}')
    run_cli(
        *("enqueue", "--key", "k1", *SAME, "--payload", "@event.json"),
        *("--header", "source=cli", "--header", "formula=a=b", "--ordering-key", "order-1"),
        *("--not-before", "2030-01-31T08:00:00+01:00"),
    )
    stored = rows(
        database_url,
        "select payload_json::text, headers, ordering_key, "
        "next_run_at at time zone 'UTC' = '2030-01-31 07:00:00' from app_outbox",
    )
    assert stored == [('{"from": "file"}', {"source": "cli", "formula": "a=b"}, "order-1", True)]


def test_enqueue_reads_stdin_raw_bytes_and_tombstones(
    database_url: str, run_cli: RunCliFunction
) -> None:
    run_cli("enqueue", "--key", "json", *SAME, "--payload", "-", stdin="[1, 2]")
    raw = ("--content-type", "text/plain")
    run_cli("enqueue", "--key", "raw", *SAME, "--payload", "-", *raw, stdin="grün")
    run_cli("enqueue", "--key", "tombstone", *SAME)
    assert rows(
        database_url,
        "select payload_json::text, payload_bytes, content_type from app_outbox order by outbox_id",
    ) == [("[1, 2]", None, None), (None, "grün".encode(), "text/plain"), (None, None, None)]


@pytest.mark.parametrize(
    ("options", "message", "code"),
    [
        (("--payload", "{"), "not JSON", 2),
        (("--payload", "@missing.json"), "missing.json cannot be read: No such file", 2),
        (("--payload", "1", "--header", "x"), "'x' must be written NAME=VALUE", 2),
        (("--payload", "1", "--header", "a=1", "--header", "a=2"), "'a' is given twice", 2),
        (("--payload", "1", "--header", "outbox-id=7"), "outbox-id", 2),
        (("--payload", "1", "--not-before", "tomorrow"), "no ISO 8601 time", 2),
        (("--payload", "1", "--on-duplicate", "ignore"), "--on-duplicate", 2),
    ],
)
def test_unusable_message_is_refused_and_nothing_is_written(
    options: tuple[str, ...], message: str, code: int, database_url: str, run_cli: RunCliFunction
) -> None:
    done = run_cli("enqueue", "--key", "k1", *SAME, *options, check=False)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert rows(database_url, "select from app_outbox") == []


def test_payload_over_the_limit_of_the_settings_is_refused(
    database_url: str, run_cli: RunCliFunction
) -> None:
    limit = {"OUTBOX_BRIDGE_ENQUEUE_MAX_PAYLOAD_BYTES": "10"}
    done = run_cli(
        "enqueue", "--key", "k", *SAME, "--payload", "[1,2,3,4,5]", env=limit, check=False
    )
    assert done.returncode == 2
    assert "10" in done.stderr


def test_careless_key_ends_with_3(database_url: str, run_cli: RunCliFunction) -> None:
    run_cli("enqueue", "--key", "k1", *SAME, "--payload", "1")
    other = ("enqueue", "--key", "k1", "--type", "order.paid", "--destination", "orders")
    done = run_cli(*other, "--payload", "1", check=False)
    assert done.returncode == 3
    assert "k1" in done.stderr
    assert "absorbed" in run_cli(*other, "--payload", "1", "--on-duplicate", "absorb").stdout


def test_list_filters(database_url: str, run_cli: RunCliFunction) -> None:
    for status in ("PENDING", "FAILED", "SENT"):
        for destination in ("orders", "invoices"):
            fill(database_url, 3, status, destination)

    def listed(*options: str) -> list[dict[str, Any]]:
        messages = json.loads(run_cli("list", "--json", *options).stdout)["messages"]
        assert isinstance(messages, list)
        return messages

    assert [m["outbox_id"] for m in listed()] == list(range(18, 0, -1))
    for status in ("FAILED", "SENT"):
        found = listed("--status", status.lower(), "--destination", "invoices")
        assert [(m["status"], m["destination"]) for m in found] == [(status, "invoices")] * 3
    assert len(listed("--status", "failed", "--status", "sent")) == 6 * 2
    assert listed("--type", "order.paid") == []


STATUS_CHOICES: list[list[Status]] = [
    [],
    [Status.PENDING],
    [Status.PENDING, Status.FAILED],
    [Status.PROCESSING, Status.FAILED, Status.PENDING],
    [Status.SENT, Status.CANCELLED],
    [Status.SENT, Status.FAILED],
]


@pytest.mark.parametrize("oldest_first", [False, True], ids=["newest first", "oldest first"])
def test_pages_show_every_row_once_and_in_order(database_url: str, *, oldest_first: bool) -> None:
    for status in ("PENDING", "FAILED", "SENT", "CANCELLED", "PENDING"):
        for destination in ("orders", "invoices"):
            fill(database_url, 7, status, f"{destination}-{status}")
            execute(database_url, "update app_outbox set message_key = outbox_id::text")
    with psycopg.connect(database_url, autocommit=True) as conn:
        for statuses in STATUS_CHOICES:
            seen: list[int] = []
            while True:
                last = seen[-1] if seen else None
                page = list_messages(
                    conn,
                    statuses=statuses,
                    limit=4,
                    oldest_first=oldest_first,
                    before=None if oldest_first else last,
                    after=last if oldest_first else None,
                )
                seen += [message.outbox_id for message in page]
                if len(page) < 4:
                    break
            wanted = conn.execute(
                "select outbox_id from app_outbox where %s = '{}' or status = any(%s) order by 1",
                [statuses, statuses],
            )
            ids = [row[0] for row in wanted]
            assert seen == (ids if oldest_first else ids[::-1]), statuses


def test_next_page_is_named(database_url: str, run_cli: RunCliFunction) -> None:
    fill(database_url, 3)
    first = json.loads(run_cli("list", "--json", "--limit", "2").stdout)
    assert first["next"] == {"before": 2}
    last = json.loads(run_cli("list", "--json", "--limit", "2", "--before", "2").stdout)
    assert ([m["outbox_id"] for m in last["messages"]], last["next"]) == ([1], None)


def test_list_as_text_says_how_to_go_on(database_url: str, run_cli: RunCliFunction) -> None:
    fill(database_url, 3)
    done = run_cli("list", "--limit", "2")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["id", "3", "2"]
    assert "--before 2" in done.stderr
    assert run_cli("list", "--before", "2").stderr == ""


def test_infinite_times_break_no_command(database_url: str, run_cli: RunCliFunction) -> None:
    fill(database_url, 1)
    execute(database_url, "update app_outbox set next_run_at = 'infinity', created_at = 'infinity'")
    (message,) = json.loads(run_cli("list", "--json").stdout)["messages"]
    assert message["next_run_at"] == "infinity"
    assert "infinity" in run_cli("show", "1").stdout
    execute(database_url, "update app_outbox set next_run_at = '-infinity'")
    execute(database_url, "update app_outbox set created_at = '-infinity'")
    assert json.loads(run_cli("status", "--json").stdout)["due"] == 1


def test_show_finds_by_id_and_by_key(database_url: str, run_cli: RunCliFunction) -> None:
    run_cli("enqueue", "--key", "order-1", *SAME, "--payload", "1")
    run_cli("enqueue", "--key", "1", *SAME, "--payload", "2")

    assert json.loads(run_cli("show", "1", "--json").stdout)["message_key"] == "order-1"
    assert json.loads(run_cli("show", "1", "--json", "--key").stdout)["message_key"] == "1"
    done = run_cli("show", "7", check=False)
    assert done.returncode == 3
    assert "no row with outbox_id or message key '7'" in done.stderr
    with psycopg.connect(database_url, autocommit=True) as conn:
        assert find_message(conn, "order-1")[0].outbox_id == 1
        assert find_message(conn, "2")[0].message_key == "1"
        for reference in ("unknown", "99999999999999999999999", "", "²", "a\0b"):
            with pytest.raises(OperationError, match="no row with"):
                find_message(conn, reference)


def test_show_tells_everything(database_url: str, run_cli: RunCliFunction) -> None:
    big = '{"number": 12345678901234567890123, "twice": 1, "twice": 2}'
    run_cli("enqueue", "--key", "k", *SAME, "--payload", big, "--header", "source=cli")
    execute(
        database_url,
        "update app_outbox set status = 'SENT', sent_partition = 3, sent_offset = 41, "
        "sent_topic = 'shop.orders', sent_at = now(), claim_count = 2, retry_count = 1, "
        "last_error_code = '_TIMED_OUT', last_error_msg = 'late'",
    )
    execute(
        database_url,
        "insert into app_outbox_audit (outbox_id, action_name, reason, changed_by, source) "
        "values (1, 'replay', 'consumer lost it', 'ops', 'sql')",
    )
    done = run_cli("show", "k", "--json")
    assert f'"payload": {big}' in done.stdout, "the payload's text is not changed"
    document = json.loads(done.stdout)
    assert document["landed"] == {"topic": "shop.orders", "partition": 3, "offset": 41}
    assert document["headers"] == {"source": "cli"}
    assert (document["claim_count"], document["retry_count"]) == (2, 1)
    assert document["last_error_code"] == "_TIMED_OUT"
    assert document["audit"][0]["reason"] == "consumer lost it"
    text = run_cli("show", "k").stdout
    for part in ("SENT", "shop.orders, partition 3, offset 41", "_TIMED_OUT late", "source", big):
        assert part in text
    assert "consumer lost it" in text


def test_show_names_the_topic_that_the_routes_lead_to(
    database_url: str, run_cli: RunCliFunction
) -> None:
    fill(database_url, 1)
    routes = {"OUTBOX_BRIDGE_ROUTES": '[{"destination": "ord*", "topic": "shop.orders"}]'}
    assert json.loads(run_cli("show", "1", "--json", env=routes).stdout)["topic"] == "shop.orders"


def test_show_cuts_a_long_payload_unless_all_is_asked_for(
    database_url: str, run_cli: RunCliFunction
) -> None:
    long = '"' + "ü" * 5000 + '"'
    run_cli("enqueue", "--key", "k", *SAME, "--payload", long)
    done = run_cli("show", "k")
    assert long not in done.stdout
    assert "--full" in done.stderr
    assert long in run_cli("show", "k", "--full").stdout
    cut = json.loads(run_cli("show", "k", "--json").stdout)
    assert (cut["payload_cut"], cut["payload_size"]) == (True, 10_002)
    assert long.startswith(cut["payload_start"])
    full = json.loads(run_cli("show", "k", "--json", "--full").stdout)
    assert (full["payload_cut"], full["payload"]) == (False, "ü" * 5000)


def test_show_tells_raw_payloads_and_tombstones_from_json_null(
    database_url: str, run_cli: RunCliFunction
) -> None:
    execute(
        database_url,
        r"insert into app_outbox "
        r"(message_key, event_type, destination, payload_json, payload_bytes, content_type) values "
        r"('null', 't', 'd', 'null', null, null), ('none', 't', 'd', null, null, null), "
        r"('raw', 't', 'd', null, '\xff00', 'application/x')",
    )

    shown = {
        key: json.loads(run_cli("show", key, "--json").stdout) for key in ("null", "none", "raw")
    }
    assert (shown["null"]["payload_kind"], shown["null"]["payload"]) == ("json", None)
    assert (shown["none"]["payload_kind"], shown["none"]["payload"]) == ("tombstone", None)
    assert shown["raw"]["payload_kind"] == "bytes"
    assert base64.b64decode(shown["raw"]["payload_base64"]) == b"\xff\x00"
    assert "tombstone" in run_cli("show", "none").stdout
    assert "ff 00" in run_cli("show", "raw").stdout


def test_stored_control_characters_do_not_reach_the_terminal(
    database_url: str, run_cli: RunCliFunction
) -> None:
    execute(
        database_url,
        r"insert into app_outbox (message_key, event_type, destination, payload_bytes) "
        r"values (E'k\x1b[2J', E't\x07', 'd', '\x1b5d303b7831')",
    )
    for output in (run_cli("list").stdout, run_cli("show", "1").stdout):
        assert "\x1b" not in output
        assert "\x07" not in output
        assert r"\x1b[2J" in output
