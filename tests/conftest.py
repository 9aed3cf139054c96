"""Real servers for the tests, started by the suite: see `tests/fixtures`."""

from __future__ import annotations

pytest_plugins = [
    "pytester",
    "tests.fixtures.cli",
    "tests.fixtures.kafka",
    "tests.fixtures.otlp",
    "tests.fixtures.postgres",
    "tests.fixtures.relays",
]
