"""`docs/consumers.md`: its SQL runs, its Python compiles, its links and names exist."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from bridge.consumer import Consumer, Inbox
from bridge.consumer.received import hash_content
from bridge.telemetry import names

if TYPE_CHECKING:
    from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "consumers.md"
TEXT = PAGE.read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def test_recipe_in_sql_does_what_the_kit_does(empty_database_url: str) -> None:
    """The page's table and statements, and then the kit on the same rows."""
    table, enter, look = blocks("sql")
    row: list[Any] = ["billing", "a", hash_content("order.paid", b"{}"), "order.paid", 7]
    place = ["orders", 0, 5]
    with psycopg.connect(empty_database_url) as conn:
        conn.execute(table.encode())
        cursor = psycopg.RawCursor(conn)
        assert cursor.execute(enter.encode(), [*row, *place]).rowcount == 1
        assert cursor.execute(enter.encode(), [*row, *place]).rowcount == 0
        assert cursor.execute(look.encode(), row[:3]).fetchone() == (True, None)
        other = hash_content("order.paid", None)
        assert cursor.execute(look.encode(), ["billing", "a", other]).fetchone() == (False, None)
        inbox = Inbox(consumer="billing")
        known = inbox.receive(conn, message_key="a", event_type="order.paid", payload=b"{}")
        assert (known.is_new, known.differs) == (False, False)
        assert inbox.receive(conn, message_key="b").is_new


def test_example_is_short_and_correct() -> None:
    (example,) = blocks("python")
    tree = ast.parse(example)
    lines = [line for line in example.splitlines() if line.strip()]
    assert len(lines) <= 8
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    options = {keyword.arg for call in calls for keyword in call.keywords}
    assert options <= set(inspect.signature(Consumer).parameters)


def test_options_metrics_and_links_of_the_page_exist() -> None:
    options = set(re.findall(r"`Consumer\((\w+)=", TEXT))
    assert options <= set(inspect.signature(Consumer).parameters)
    known = {value for value in vars(names).values() if isinstance(value, str)}
    own = {f"outbox_bridge.consumer{name}" for name in re.findall(r"`(\.[a-z_]+)`", TEXT)}
    assert {name for name in known if name.startswith("outbox_bridge.consumer.")} <= own | {
        "outbox_bridge.consumer.processed"
    }
    assert own <= known
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert (PAGE.parent / target).exists(), target
