"""The console as people use it: in a browser, by mouse and keyboard, with and without script."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from confluent_kafka.admin import (  # type: ignore[attr-defined] # public, though not marked so
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from playwright.sync_api import expect

from tests.console.browser import browser, furnish, opened
from tests.fixtures.postgres import on_one_server
from tests.fixtures.relays import PATIENCE
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.console.conftest import StartConsoleFunction
    from tests.fixtures.kafka import KafkaBroker, NewTopicFunction
    from tests.fixtures.relays import Outbox, StartRelayFunction

__all__ = ["browser"]

SLOW_MS = PATIENCE * 1000
STANDARDS = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}


def keep_picture(page: Page, name: str) -> None:
    """Write a picture for the docs, where OUTBOX_BRIDGE_TEST_PICTURES names the folder."""
    folder = os.environ.get("OUTBOX_BRIDGE_TEST_PICTURES")
    if folder:
        page.mouse.move(0, 0)
        page.screenshot(path=Path(folder) / f"console-{name}.png", animations="disabled")


def raise_limit(kafka: KafkaBroker, topic: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    resource.add_incremental_config(
        ConfigEntry("max.message.bytes", "1000000", incremental_operation=AlterConfigOpType.SET)
    )
    kafka.admin.incremental_alter_configs([resource])[resource].result(30)


def fail_rows(outbox: Outbox, count: int = 3) -> list[int]:
    ids = outbox.add(count, "orders", prefix="failed", ordering_key="order-17")
    outbox.execute(
        "update app_outbox set status = 'FAILED', retry_count = 5, claim_count = 5, "
        "last_error_code = 'MESSAGE_TOO_LARGE', last_error_msg = 'Broker: Message size too large' "
        "where outbox_id = any(%s)",
        ids,
    )
    outbox.execute(
        "insert into app_outbox_hold (destination, ordering_key, outbox_id, key_hash, lane, "
        "boundary, error_code) select destination, ordering_key, outbox_id, "
        "hashtext(ordering_key), hashtext(ordering_key) & 63, outbox_id, last_error_code "
        "from app_outbox where outbox_id = %s",
        ids[0],
    )
    return ids


@on_one_server
def test_a_failed_message_is_found_previewed_retried_sent_and_in_the_audit(  # noqa: PLR0917 - fixtures
    outbox: Outbox,
    kafka: KafkaBroker,
    new_topic: NewTopicFunction,
    start_relay: StartRelayFunction,
    start_console: StartConsoleFunction,
    browser: Browser,
) -> None:
    if not kafka.is_real:
        pytest.skip("the mock cluster knows no max.message.bytes")
    topic = new_topic("orders", config={"max.message.bytes": "2000"})
    furnish(outbox)
    routes = [{"destination": "orders", "topic": topic}]
    start_relay(name="relay-1", env={"OUTBOX_BRIDGE_ROUTES": json.dumps(routes)})
    (large,) = outbox.query(
        "insert into app_outbox (message_key, event_type, destination, ordering_key, payload_json, "
        "headers, max_retry_count) select 'order-2001-created', 'order.created', 'orders', "
        "'order-2001', json_build_object('order', 2001, 'card', json_build_object('number', "
        "'4111 1111 1111 1111'), 'lines', (select json_agg(json_build_object('sku', md5(n::text), "
        "'quantity', n %% 4 + 1)) from generate_series(1, 120) as n)), %s, 1 returning outbox_id",
        '{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}',
    )
    outbox.wait_for("FAILED", large)
    outbox.add(3, "orders", prefix="order-2001-update", ordering_key="order-2001")
    wait_until(
        lambda: outbox.value("select count(*) from app_outbox_queue where parked = 'k'") == 3,
        "the followers are parked",
        PATIENCE,
    )
    console = start_console(
        masks="card.number", trace_link="https://traces.example.net/trace/{trace_id}"
    )
    with opened(browser, console.url, scheme="dark") as page:
        page.goto("/")
        expect(page.locator("#pulse")).to_contain_text("Live", timeout=SLOW_MS)
        keep_picture(page, "overview-dark")
    with opened(browser, console.url, phone=True) as page:
        page.goto("/")
        keep_picture(page, "phone")
    with opened(browser, console.url) as page:
        page.goto("/")
        expect(page.locator("#live")).to_contain_text("1 row FAILED and waits")
        expect(page.locator("#pulse")).to_contain_text("Live", timeout=SLOW_MS)
        keep_picture(page, "overview")
        page.get_by_role("link", name="Failures", exact=True).last.click()
        expect(page.locator("#live")).to_contain_text("MESSAGE_TOO_LARGE in orders")
        page.get_by_role("link", name="Show rows").click()
        page.get_by_role("link", name=str(large[0]), exact=True).click()
        expect(page.locator("h1")).to_have_text(f"Message {large[0]}")
        expect(page.locator("#live")).to_contain_text("may have been sent")
        expect(page.locator("pre")).not_to_contain_text("4111")
        keep_picture(page, "message")
        raise_limit(kafka, topic)
        page.get_by_role("button", name="Retry…").click()
        expect(page.locator("#live")).to_contain_text("Would change")
        assert outbox.row(large[0]).status == "FAILED"
        page.get_by_label("Reason").fill("max.message.bytes of the topic is raised")
        keep_picture(page, "retry")
        page.get_by_role("button", name="Retry 1 row").click()
        expect(page.locator("#live")).to_contain_text("1 row set to PENDING again")
        page.get_by_role("link", name=str(large[0]), exact=True).click()
        # The page itself learns of it; nobody reloads.
        expect(page.locator("#live .title .status")).to_have_text("SENT", timeout=SLOW_MS)
        expect(page.locator(".timeline")).to_contain_text(f"topic {topic}, partition")
        page.get_by_role("link", name="Audit", exact=True).click()
        expect(page.locator("tbody tr").first).to_contain_text("max.message.bytes of the topic")
        expect(page.locator("tbody tr").first).to_contain_text("FAILED")
        keep_picture(page, "audit")
        page.goto("/keys")
        expect(page.locator("#live")).to_contain_text("No key is held", timeout=SLOW_MS)
    outbox.wait_for("SENT", large)


def violations(page: Page) -> list[str]:
    found: Any = page.evaluate(
        "options => axe.run(document, options)", {**STANDARDS, "resultTypes": ["violations"]}
    )
    return [
        f"{one['id']}: {node['target']} {node.get('html', '')[:120]}"
        for one in found["violations"]
        for node in one["nodes"]
    ]


@on_one_server
@pytest.mark.timeout(300)
def test_every_page_is_accessible_in_light_and_dark_and_on_a_phone(
    outbox: Outbox, start_console: StartConsoleFunction, browser: Browser
) -> None:
    furnish(outbox)
    ids = fail_rows(outbox)
    outbox.execute(
        "insert into app_outbox_relay (relay_name, host, pid, version, lease_seconds) "
        "values ('relay-9', 'host-3', 9, '0.1.0', 120)"
    )
    console = start_console(refresh="1h")
    found: list[str] = []
    with opened(browser, console.url) as page:
        for path in (
            "/",
            "/messages?destination=mails&key=order-180*",
            "/messages?status=FAILED&from=nonsense",
            f"/messages/{ids[0]}",
            "/failures",
            "/keys",
            "/destinations",
            "/destinations/change?destination=mails",
            "/relays",
            "/audit",
            "/system",
            f"/act?action=retry&id={ids[0]}&id=1",
        ):
            page.set_viewport_size({"width": 1280, "height": 800})
            page.emulate_media(color_scheme="light")
            page.goto(path)
            page.evaluate(AXE_SCRIPT)
            found += [f"light {path} {one}" for one in violations(page)]
            page.emulate_media(color_scheme="dark")
            found += [f"dark {path} {one}" for one in violations(page)]
            page.set_viewport_size({"width": 390, "height": 844})
            found += [f"phone {path} {one}" for one in violations(page)]
            wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            if wide > 0:
                found.append(f"{path} is {wide} px wider than a phone")
    assert not found, "\n".join(found)


@on_one_server
def test_the_keyboard_alone_is_enough(
    outbox: Outbox, start_console: StartConsoleFunction, browser: Browser
) -> None:
    ids = fail_rows(outbox)
    console = start_console()
    with opened(browser, console.url) as page:
        page.goto("/messages?status=FAILED")
        page.keyboard.press("Tab")
        expect(page.locator(":focus")).to_have_text("Skip to the content")
        page.keyboard.press("Enter")
        page.locator(f"#m-{ids[2]}").focus()
        page.keyboard.press("ArrowDown")
        expect(page.locator(f"#m-{ids[1]}")).to_be_focused()
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile(rf"/messages/{ids[1]}$"))
        tab_to(page, "Retry…")
        page.keyboard.press("Enter")
        expect(page.get_by_label("Reason")).to_be_focused()
        page.keyboard.type("by keyboard")
        page.keyboard.press("Enter")
        expect(page.locator("#live")).to_contain_text("1 row set to PENDING again")
        outline = page.evaluate(
            "() => { document.querySelector('nav a').focus({focusVisible: true});"
            " return getComputedStyle(document.activeElement).outlineStyle }"
        )
        assert outline == "solid"
    assert outbox.row(ids[1]).status == "PENDING"


def tab_to(page: Page, name: str, most: int = 60) -> None:
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent").strip() == name:
            return
    pytest.fail(f"{name!r} is not reached by Tab")


@on_one_server
def test_everything_works_without_script(
    outbox: Outbox, start_console: StartConsoleFunction, browser: Browser
) -> None:
    ids = fail_rows(outbox)
    console = start_console()
    with opened(browser, console.url, script=False) as page:
        page.goto("/")
        page.get_by_role("link", name="Messages", exact=True).click()
        page.get_by_label("FAILED").check()
        page.get_by_role("button", name="Filter").click()
        expect(page.locator("#total")).to_contain_text("3 messages")
        page.get_by_role("link", name="Retry…").click()
        page.get_by_label("Reason").fill("without script")
        page.get_by_role("button", name="Retry 3 rows").click()
        expect(page.locator("#live")).to_contain_text("3 rows set to PENDING again")
        page.goto("/system")
        page.locator("summary").click()
        page.get_by_role("button", name="Dark").click()
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert {row.status for row in outbox.rows(ids)} == {"PENDING"}


@on_one_server
def test_pages_follow_what_happens_and_rest_while_nobody_looks(
    outbox: Outbox, start_console: StartConsoleFunction, browser: Browser
) -> None:
    console = start_console(refresh="100ms")
    with opened(browser, console.url) as page:
        page.goto("/")
        expect(page.locator("#pulse")).to_have_text("Live")
        outbox.add(7, "orders")
        expect(page.locator("#live")).to_contain_text("7 due", timeout=SLOW_MS)
        page.evaluate(
            "Object.defineProperty(document, 'hidden', {value: true, configurable: true});"
            "document.dispatchEvent(new Event('visibilitychange'))"
        )
        expect(page.locator("#pulse")).to_have_text("Paused")
        with page.expect_request("**/events"):
            page.evaluate(
                "delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))"
            )
        page.goto("/messages")
        expect(page.locator("#pulse")).to_have_text("Live")
        outbox.add(1, "orders", prefix="n")
        # A list is not changed under the reader's hand.
        expect(page.locator("#news")).to_be_visible(timeout=SLOW_MS)
        expect(page.locator("#total")).to_contain_text("7 messages")
    context = browser.new_context(base_url=console.url)
    page = context.new_page()
    page.route("**/events", lambda route: route.abort())
    page.goto("/")
    expect(page.locator("#pulse")).to_contain_text("Polling", timeout=SLOW_MS)
    outbox.add(1, "orders", prefix="o")
    expect(page.locator("#live")).to_contain_text("9 due", timeout=SLOW_MS)
    context.close()


@on_one_server
def test_chosen_rows_are_acted_on_together(
    outbox: Outbox, start_console: StartConsoleFunction, browser: Browser
) -> None:
    ids = fail_rows(outbox)
    console = start_console()
    with opened(browser, console.url) as page:
        page.goto("/messages")
        page.get_by_label(f"Select {ids[0]}", exact=True).check()
        page.get_by_label(f"Select {ids[2]}", exact=True).check()
        expect(page.locator("[data-selected]")).to_have_text("2 selected")
        page.get_by_role("button", name="Cancel…").click()
        page.get_by_label("Reason").fill("two of three")
        page.get_by_role("button", name="Cancel 2 rows").click()
        expect(page.locator("#live")).to_contain_text("2 rows cancelled")
    assert [row.status for row in outbox.rows(ids)] == ["CANCELLED", "FAILED", "CANCELLED"]


@on_one_server
def test_a_signal_ends_the_console_in_good_order_with_pages_open(
    database_url: str, start_console: StartConsoleFunction, browser: Browser
) -> None:
    console = start_console()
    with opened(browser, console.url, may_end=True) as page:
        page.goto("/")
        expect(page.locator("#pulse")).to_have_text("Live")
        console.process.send(signal.SIGTERM)
        assert console.process.wait(PATIENCE) == 0
    assert "Traceback" not in console.process.stderr
