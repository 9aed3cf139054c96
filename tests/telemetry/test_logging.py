from __future__ import annotations

import io
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from bridge.telemetry.logging import configure_logging

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_is_one_object_a_line_with_what_the_thread_bound() -> None:
    stream = io.StringIO()
    configure_logging("info", "auto", stream=stream)
    structlog.contextvars.bind_contextvars(stage="claim")
    log = structlog.get_logger("bridge.test")
    log.info("claimed", rows=3, text="two\nlines")
    log.debug("unseen")
    logging.getLogger("library").warning("from %s", "elsewhere")
    first, second = lines(stream)
    assert first["event"] == "claimed"
    assert (first["rows"], first["stage"], first["level"]) == (3, "claim", "info")
    assert (second["event"], second["stage"], second["level"]) == (
        "from elsewhere",
        "claim",
        "warning",
    )


def test_values_that_json_does_not_know_lose_no_line() -> None:
    stream = io.StringIO()
    configure_logging("info", "json", stream=stream)
    log = structlog.get_logger("bridge.test")
    for value in (b"\xff", "\ud800", 2**70, object(), {1: 2}):
        log.info("value", value=value)
    assert len(lines(stream)) == 5


@pytest.mark.parametrize("form", ["json", "console"])
def test_traceback_is_logged_without_local_variables(form: Any) -> None:
    stream = io.StringIO()
    configure_logging("info", form, stream=stream)

    def fail() -> None:
        password = "hunter" + "2"
        raise RuntimeError(f"broken, {len(password)} characters")

    try:
        fail()
    except RuntimeError:
        structlog.get_logger("bridge.test").exception("stopped")
    assert "RuntimeError: broken, 7 characters" in stream.getvalue()
    assert "hunter2" not in stream.getvalue()


def test_console_is_plain_where_nobody_looks() -> None:
    stream = io.StringIO()
    configure_logging("warning", "console", stream=stream)
    log = structlog.get_logger("bridge.test")
    log.info("unseen")
    log.warning("seen", rows=3)
    assert "seen" in stream.getvalue()
    assert "unseen" not in stream.getvalue()
    assert "\x1b" not in stream.getvalue()
