"""What the pages show, and how lists are narrowed down and walked through."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from tests.fixtures.relays import PATIENCE
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from tests.console.conftest import Console, NewConsoleFunction
    from tests.fixtures.relays import Outbox


def fail(outbox: Outbox, ids: list[int], code: str = "MESSAGE_TOO_LARGE") -> None:
    outbox.execute(
        "update app_outbox set status = 'FAILED', retry_count = 5, last_error_code = %s, "
        "last_error_msg = 'Broker: refused' where outbox_id = any(%s)",
        code,
        ids,
    )


def send(outbox: Outbox, ids: list[int]) -> None:
    outbox.execute(
        "update app_outbox set status = 'SENT', claim_count = 1, sent_partition = 3, "
        "sent_offset = 99, sent_at = now() where outbox_id = any(%s)",
        ids,
    )


def test_an_empty_outbox_is_said_to_be_one(database_url: str, console: Console) -> None:
    assert "No relay is alive" in console.text("/")
    assert "No message yet" in console.text("/")
    assert "No message matches" in console.text("/messages")
    assert "Nothing failed" in console.text("/failures")
    assert "No key is held" in console.text("/keys")
    assert "No destination yet" in console.text("/destinations")
    assert "No relay is registered" in console.text("/relays")
    assert "No entry" in console.text("/audit")


def test_the_list_is_walked_without_loss_while_rows_come(outbox: Outbox, console: Console) -> None:
    ids = outbox.add(130, "orders")
    html = console.page("/messages")
    assert "130 messages" in html
    first = console.rows("/messages")
    outbox.add(20, "orders", prefix="late")
    walked = [
        *first,
        *[one for page in console.pages(f"/messages?before={first[-1]}") for one in page],
    ]
    assert walked == sorted(ids, reverse=True)


FILTERS: list[tuple[dict[str, Any], set[str]]] = [
    ({"status": "FAILED"}, {"failed"}),
    ({"status": ["FAILED", "PENDING"]}, {"failed", "waiting", "mail"}),
    ({"status": "SENT"}, {"sent"}),
    ({"status": ["SENT", "FAILED"], "destination": "orders"}, {"sent", "failed"}),
    ({"status": "PENDING", "destination": "mails"}, {"mail"}),
    ({"status": "PENDING", "type": "mail.receipt"}, {"mail"}),
    ({"type": "mail.receipt"}, {"mail"}),
    ({"type": "order.created", "status": "SENT"}, {"sent"}),
    ({"destination": "mails"}, {"mail"}),
    ({"ordering_key": "k1"}, {"waiting"}),
    ({"error": "MESSAGE_TOO_LARGE"}, {"failed"}),
    ({"status": "FAILED", "error": "OTHER"}, set()),
    ({"key": "mail-1"}, {"mail"}),
    ({"key": "mai?-*"}, {"mail"}),
    ({"key": "mail-1", "status": "SENT"}, set()),
    ({"trace": "4bf92f3577b34da6a3ce929d0e0e4736"}, {"sent"}),
    ({"from": "1h"}, {"failed", "waiting", "mail"}),
    ({"to": "1h"}, {"sent"}),
    ({"from": "1h", "status": "PENDING"}, {"waiting", "mail"}),
    ({"type": "order.created", "to": "1h"}, {"sent"}),
]


def test_each_filter_finds_its_rows(outbox: Outbox, console: Console) -> None:
    trace = '{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}'
    rows = {
        "sent": outbox.add(1, "orders", prefix="s", headers=trace),
        "failed": outbox.add(1, "orders", prefix="f"),
        "waiting": outbox.add(1, "orders", prefix="w", ordering_key="k1"),
        "mail": outbox.add(1, "mails", prefix="mail"),
    }
    outbox.execute(
        "update app_outbox set created_at = now() - interval '2 hours' where outbox_id = any(%s)",
        rows["sent"],
    )
    outbox.execute(
        "update app_outbox set event_type = 'mail.receipt' where outbox_id = any(%s)", rows["mail"]
    )
    send(outbox, rows["sent"])
    fail(outbox, rows["failed"])
    for query, expected in FILTERS:
        found = console.rows("/messages?" + urlencode(query, doseq=True))
        assert sorted(found) == sorted(one for name in expected for one in rows[name]), query


def test_lists_by_type_are_walked_through_rows_of_one_transaction(
    outbox: Outbox, console: Console
) -> None:
    ids = [*outbox.add(70, "orders", prefix="a"), *outbox.add(70, "orders", prefix="b")]
    walked = [one for page in console.pages("/messages?type=order.created") for one in page]
    assert walked == sorted(ids, reverse=True)


def test_a_filter_without_an_index_says_how_far_it_looked(outbox: Outbox, console: Console) -> None:
    (needle,) = outbox.add(1, "rare")
    outbox.execute(
        "insert into app_outbox (message_key, event_type, destination, payload_json) "
        "select 'x' || n, 't', 'common', '1' from generate_series(1, 10050) as n"
    )
    assert "10,000+ messages" in console.text("/messages")
    first = console.text("/messages?destination=rare")
    assert "0 of the newest 10,000 looked at" in first
    assert "None among the rows looked at" in first
    assert console.pages("/messages?destination=rare")[-1] == [needle]


def test_lists_by_status_go_through_the_side_tables(outbox: Outbox, console: Console) -> None:
    """A failed row is found although a hundred thousand newer ones were sent since."""
    ids = outbox.add(1, "orders")
    fail(outbox, ids)
    outbox.execute(
        "insert into app_outbox (message_key, event_type, destination, status, sent_partition) "
        "select 'x' || n, 't', 'common', 'SENT', 1 from generate_series(1, 11000) as n"
    )
    assert console.rows("/messages?status=FAILED") == ids
    assert "1 message " in console.text("/messages?status=FAILED")


def test_a_message_tells_its_life(outbox: Outbox, console: Console) -> None:
    ids = outbox.add(1, "orders", ordering_key="order-1", headers='{"tenant": "seven"}')
    send(outbox, ids)
    text = console.text(f"/messages/{ids[0]}")
    for part in ("SENT", "was sent", "Enqueued", "Acknowledged by Kafka", "partition 3, offset 99"):
        assert part in text, part
    assert '{ "number": 1 }' in text
    assert "tenant seven" in text
    assert "Nobody has acted" in text


def test_payloads_headers_and_audit_are_masked(
    outbox: Outbox, new_console: NewConsoleFunction
) -> None:
    ids = outbox.add(
        1,
        "orders",
        payload_json='{"card": {"number": "4111-secret"}, "n": 1}',
        headers='{"authorization": "Bearer secret"}',
    )
    (big,) = outbox.add(1, "orders", prefix="big", payload_json=f'{{"card": "{"x" * 300_000}"}}')
    (raw,) = outbox.add(1, "orders", prefix="raw", payload_bytes=b"card=4111-secret")
    masked = new_console(masks=["card.number", "header:authorization"])
    html = masked.page(f"/messages/{ids[0]}")
    assert "secret" not in html
    assert "1 field masked" in html
    assert "xxx" not in masked.page(f"/messages/{big}")
    assert "secret" not in masked.page(f"/messages/{raw}")
    hidden = new_console(payloads="operators", role="viewer")
    assert "secret&#34;" not in hidden.page(f"/messages/{ids[0]}").partition("Headers")[0]


def test_the_trace_is_linked(outbox: Outbox, new_console: NewConsoleFunction) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    (one,) = outbox.add(1, "orders", headers=f'{{"traceparent": "00-{trace}-00f067aa0ba902b7-01"}}')
    console = new_console(trace_link="https://traces.example.net/t/{trace_id}?x=1")
    assert f'href="https://traces.example.net/t/{trace}?x=1"' in console.page(f"/messages/{one}")


def test_search_leads_to_the_message(outbox: Outbox, console: Console) -> None:
    (one,) = outbox.add(1, "orders")
    for text in (str(one), "m-1"):
        assert (
            console.http.get("/find", params={"q": text})
            .headers["location"]
            .endswith(f"/messages/{one}")
        )
    answer = console.http.get("/find", params={"q": "m-*"})
    assert answer.headers["location"].endswith("/messages?key=m-%2A")
    assert "No message 999" in console.text("/messages/999", 404)


def test_failures_are_grouped_with_advice(outbox: Outbox, console: Console) -> None:
    fail(outbox, outbox.add(3, "orders"), "MESSAGE_TOO_LARGE")
    fail(outbox, outbox.add(2, "mails", prefix="n"), "TOPIC_AUTHORIZATION_FAILED")
    text = console.text("/failures")
    assert "5 rows FAILED" in text
    assert "MESSAGE_TOO_LARGE in orders 3" in text
    assert "max.message.bytes" in text
    assert "Grant it the right" in text
    assert "5 rows FAILED for 2 different reasons" in console.text("/")


def test_a_long_backlog_is_sketched(outbox: Outbox, console: Console) -> None:
    outbox.execute(
        "insert into app_outbox (message_key, event_type, destination, ordering_key) "
        "select 'x' || n, 't', 'orders', case when n %% 2 = 0 then 'k' || n end "
        "from generate_series(1, 25000) as n"
    )
    text = console.text("/")
    assert "counted up to limits" in text
    assert "orders 10,000+" in text
    assert "25,000" in text


def test_switches_are_set_and_taken_off(outbox: Outbox, console: Console) -> None:
    outbox.add(1, "orders")

    def set_switch(**form: str) -> str:
        answer = console.send("/destinations/set", destination="orders", **form)
        assert answer.status_code == 303, answer.text
        return console.text(answer.headers["location"])

    assert "Paused : ticket 1" in set_switch(switch="pause", reason="ticket 1")
    assert "paused" in console.text("/destinations")
    assert "orders is paused by" in console.text("/")
    set_switch(switch="resume", reason="done")
    assert "200 rows a second" in set_switch(switch="limit", rows_per_second="200", reason="slow")
    set_switch(switch="limit", off="yes", reason="fast again")
    window = "23:00-06:00 Europe/Berlin"
    assert f"Quiet {window}" in set_switch(switch="quiet", quiet_hours=window, reason="night")
    assert "50 rows a claim" in set_switch(switch="batch", batch_rows="50", reason="share")
    entries = outbox.query("select action_name, source from app_outbox_audit order by audit_id")
    assert [name for name, _ in entries] == ["pause", "resume", "limit", "limit", "quiet", "batch"]
    assert {source for _, source in entries} == {"console"}


WRONG_SWITCHES: list[tuple[dict[str, str], str]] = [
    ({"switch": "pause", "reason": "  "}, "reason is blank"),
    ({"switch": "limit", "rows_per_second": "many", "reason": "x"}, "is no number"),
    ({"switch": "limit", "rows_per_second": "0", "reason": "x"}, "give a number from 1"),
    ({"switch": "quiet", "quiet_hours": "night", "reason": "x"}, "no daily window"),
    ({"switch": "quiet", "quiet_hours": "01:00-02:00 Moon/Sea", "reason": "x"}, "no time zone"),
    ({"switch": "explode", "reason": "x"}, "names no switch"),
]


def test_a_switch_that_cannot_be_set_says_why(outbox: Outbox, console: Console) -> None:
    for form, said in WRONG_SWITCHES:
        answer = console.send("/destinations/set", destination="orders", **form)
        assert answer.status_code == 422
        assert said in answer.text
    assert outbox.query("select * from app_outbox_control") == []


def test_the_audit_is_verified(outbox: Outbox, console: Console) -> None:
    console.send("/destinations/set", destination="*", switch="pause", reason="incident")
    answer = console.send("/audit/verify")
    assert "The chain of 1 entries holds" in answer.text
    outbox.execute("alter table app_outbox_audit disable trigger user")
    outbox.execute("update app_outbox_audit set reason = 'nothing happened'")
    assert "The chain is broken in 1 place" in console.send("/audit/verify").text


def test_relays_are_listed_with_what_they_hold(outbox: Outbox, console: Console) -> None:
    outbox.execute(
        "insert into app_outbox_relay (relay_name, host, pid, version, lease_seconds, has_lock, "
        "heartbeat_at) values ('relay-1', 'h', 7, '1', 120, true, now() - interval '5 minutes')"
    )
    outbox.execute(
        "insert into app_outbox_claim (claim_id, relay_id, outbox_ids) "
        "select gen_random_uuid(), relay_id, '{1,2,3}' from app_outbox_relay"
    )
    text = console.text("/relays")
    assert "relay-1 dead h pid 7" in text
    outbox.execute(
        "insert into app_outbox_relay (relay_name, host, pid, version, lease_seconds, has_lock, "
        "failing) values ('relay-2', 'h', 8, '1', 120, false, "
        "jsonb_build_object('orders', 'LEADER_NOT_AVAILABLE'))"
    )
    assert "orders does not take records: LEADER_NOT_AVAILABLE" in console.text("/")
    assert "orders LEADER_NOT_AVAILABLE" in console.text("/relays")
    assert "Relay relay-1 is dead" in console.text("/")


def test_the_doctor_tells_what_it_found(outbox: Outbox, console: Console) -> None:
    def examined() -> str | None:
        text = console.text("/system")
        return text if "looked" in text and "Looking at" not in text else None

    text = wait_until(examined, "the examination is over", PATIENCE)
    assert text
    assert re.search(r"[1-9]\d* unknown, [1-9]\d* ok", text), text
    assert "migrations ok" in text
    assert "kafka unknown" in text
    assert console.send("/system/examine").status_code == 303
