"""A real Chromium, and an outbox that is worth looking at."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.fixtures.relays import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from tests.fixtures.relays import Outbox

FLAGS = (
    "--headless",
    "--no-sandbox",  # as root there is none
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
DESKTOP = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for a module; each page has a profile of its own."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("Chromium is not installed; as root run: apt-get install -y chromium")
    expect.set_options(timeout=PATIENCE * 1000)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, headless=True, args=list(FLAGS))
        yield running
        running.close()


@contextmanager
def opened(
    browser: Browser,
    url: str,
    *,
    scheme: Literal["light", "dark"] = "light",
    phone: bool = False,
    script: bool = True,
    may_end: bool = False,
) -> Iterator[Page]:
    """Open a page; at the end the test fails where it complained (of the policy, too).

    `may_end`: the console ends meanwhile, and the page may find it gone.
    """
    size = PHONE if phone else DESKTOP
    context = browser.new_context(
        base_url=url,
        viewport={"width": size["width"], "height": size["height"]},
        color_scheme=scheme,
        java_script_enabled=script,
        is_mobile=phone,
    )
    page = context.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    context.close()
    expected = ("503", "net::ERR_") if may_end else ("503",)
    assert [said for said in complaints if not any(one in said for one in expected)] == []


def furnish(outbox: Outbox) -> None:
    """Write what a shop's outbox looks like on an ordinary day: history, and a paused mailer."""
    outbox.execute(
        """
        insert into app_outbox (message_key, event_type, destination, payload_json, status,
            claim_count, sent_partition, sent_offset, created_at, sent_at)
        select 'order-' || n || '-created', 'order.created',
            case n %% 3 when 0 then 'inventory' else 'orders' end,
            json_build_object('order', n, 'status', 'created', 'total', n %% 90 + 9.5), 'SENT', 1,
            n %% 6, n / 6, now() - (2000 - n) * interval '2 seconds',
            now() - (2000 - n) * interval '2 seconds' + interval '4 ms'
        from generate_series(1, 2000) as n
        """
    )
    outbox.execute("truncate app_outbox_counter")
    outbox.execute(
        """
        insert into app_outbox_counter (destination, status, delta, counted_at)
        select d.name, 'SENT', (d.rate * (2 + sin(n / 9.0) + random() * 0.4))::int,
            date_trunc('minute', now()) - n * interval '1 minute'
        from generate_series(1, 90) as n,
            (values ('orders', 400), ('inventory', 180), ('mails', 60)) as d (name, rate)
        """
    )
    outbox.execute(
        "insert into app_outbox (message_key, event_type, destination, payload_json) "
        "select 'order-' || n || '-receipt', 'mail.receipt', 'mails', "
        "json_build_object('order', n, 'template', 'receipt') from generate_series(1800, 2000) as n"
    )
    outbox.execute(
        "insert into app_outbox_control (destination, paused, reason) "
        "values ('mails', true, 'mail provider is down, ticket 4711')"
    )
