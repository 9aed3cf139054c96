"""Actions from the browser: a preview first, then a reason, then the audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.console.test_pages import fail, send

if TYPE_CHECKING:
    from tests.console.conftest import Console
    from tests.fixtures.relays import Outbox


def test_one_row_is_retried_with_its_reason_on_record(outbox: Outbox, console: Console) -> None:
    ids = outbox.add(1, "orders")
    fail(outbox, ids)
    preview = console.text(f"/act?action=retry&id={ids[0]}")
    assert "Would change 1 row" in preview
    assert outbox.row(ids[0]).status == "FAILED"
    assert "1 row set to PENDING again" in console.act("retry", id=ids[0], reason="limit raised")
    assert outbox.row(ids[0]).status == "PENDING"
    ((action, reason, source),) = outbox.query(
        "select action_name, reason, source from app_outbox_audit"
    )
    assert (action, reason, source) == ("retry", "limit raised", "console")
    assert "limit raised" in console.text(f"/messages/{ids[0]}")


def test_all_that_match_are_retried_and_no_others(outbox: Outbox, console: Console) -> None:
    wanted = outbox.add(30, "orders")
    other = outbox.add(5, "mails", prefix="n")
    fail(outbox, wanted)
    fail(outbox, other)
    query = {"status": "FAILED", "destination": "orders", "error": "MESSAGE_TOO_LARGE"}
    page = console.http.get("/act", params={"action": "retry", **query}).text
    assert "Retry 30 rows" in page
    assert "30 rows set to PENDING again" in console.act("retry", reason="mended", **query)
    assert {row.status for row in outbox.rows(wanted)} == {"PENDING"}
    assert {row.status for row in outbox.rows(other)} == {"FAILED"}


def test_cancel_send_now_and_replay(outbox: Outbox, console: Console) -> None:
    (later,) = outbox.add(1, "orders", next_run_at="2100-01-01")
    (sent,) = outbox.add(1, "orders", prefix="s")
    (failed,) = outbox.add(1, "orders", prefix="f")
    send(outbox, [sent])
    fail(outbox, [failed])
    assert "1 row made due" in console.act("send-now", id=later, reason="customer waits")
    assert outbox.row(later).wait_seconds <= 0
    assert "1 row cancelled" in console.act("cancel", id=failed, reason="wrong order")
    assert outbox.row(failed).status == "CANCELLED"
    done = console.act("replay", id=sent, reason="consumer lost it", rows_per_second="1000")
    assert "1 row to be sent once more" in done
    assert outbox.row(sent).status == "PENDING"


def test_rows_in_the_wrong_state_are_named_and_left(outbox: Outbox, console: Console) -> None:
    ids = outbox.add(2, "orders")
    fail(outbox, ids[:1])
    preview = console.text(f"/act?action=retry&id={ids[0]}&id={ids[1]}")
    assert "Not possible for 1" in preview
    done = console.act("retry", id=ids, reason="both")
    assert "1 row set to PENDING again" in done
    assert "Left as they are 1" in done


WRONG_FORMS: list[tuple[dict[str, str], int, str]] = [
    ({"reason": " "}, 422, "reason is blank"),
    ({"reason": "x", "rows_per_second": "-1"}, 422, "no number above 0"),
    ({"reason": "x", "id": "abc"}, 400, "no outbox_id"),
    ({"reason": "x", "id": "0"}, 400, "no outbox_id"),
    ({"reason": "x", "action": "explode"}, 400, "names no action"),
]


def test_what_cannot_be_done_says_why_and_does_nothing(outbox: Outbox, console: Console) -> None:
    (one,) = outbox.add(1, "orders")
    fail(outbox, [one])
    for form, status, said in WRONG_FORMS:
        answer = console.send("/act", **{"action": "retry", "id": str(one), **form})
        assert answer.status_code == status
        assert said in answer.text
    assert outbox.row(one).status == "FAILED"


def test_a_filter_that_cannot_be_read_never_means_more_rows(
    outbox: Outbox, console: Console
) -> None:
    fail(outbox, outbox.add(3, "orders"))
    for broken in ({"status": "FALED"}, {"status": "FAILED", "from": "soon"}, {"trace": "xyz"}):
        asked = console.http.get("/act", params={"action": "retry", **broken})
        ordered = console.send("/act", action="retry", reason="x", **broken)
        assert (asked.status_code, ordered.status_code) == (400, 400), broken
    assert outbox.counts() == {"FAILED": 3}


def test_an_action_without_any_filter_is_refused(outbox: Outbox, console: Console) -> None:
    fail(outbox, outbox.add(3, "orders"))
    assert console.send("/act", action="retry", reason="x").status_code == 422
    assert outbox.counts() == {"FAILED": 3}


def test_a_held_key_is_skipped(outbox: Outbox, console: Console) -> None:
    head, _ = outbox.add(2, "orders", ordering_key="k1")
    fail(outbox, [head])
    outbox.execute(
        "insert into app_outbox_hold (destination, ordering_key, outbox_id, key_hash, lane, "
        "boundary, error_code) select destination, ordering_key, outbox_id, "
        "hashtext(ordering_key), hashtext(ordering_key) & 63, outbox_id, last_error_code "
        "from app_outbox where outbox_id = %s",
        head,
    )
    assert "k1 orders" in console.text("/keys")
    assert "1 row holds up its key" in console.text("/")
    assert "1 row skipped" in console.act("skip", id=head, reason="customer agreed")
    assert outbox.value("select released_at is not null from app_outbox_hold")


def test_an_action_that_ends_the_connection_tells_what_was_done(
    outbox: Outbox, console: Console
) -> None:
    fail(outbox, outbox.add(3, "orders"))
    outbox.execute("revoke all on app_outbox from public")
    outbox.execute(
        "create function slow() returns trigger language plpgsql as "
        "$$ begin perform pg_terminate_backend(pg_backend_pid()); return new; end $$"
    )
    outbox.execute(
        "create trigger slow before update on app_outbox for each row execute function slow()"
    )
    text = console.act("retry", status="FAILED", reason="x")
    assert "connection to PostgreSQL was lost" in text or "terminating connection" in text
    assert outbox.counts() == {"FAILED": 3}
