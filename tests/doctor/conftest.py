from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import psycopg
import pytest

from bridge.doctor import Finding, Limits, Verdict, examine
from bridge.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def conn(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A superuser's connection to the database that is examined."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


class FindFunction(Protocol):
    def __call__(
        self, check: str, limits: Limits | None = None, url: str | None = None
    ) -> list[Finding]: ...


@pytest.fixture
def find(database_url: str) -> FindFunction:
    """Make one check of the database and return what it found."""

    def look(check: str, limits: Limits | None = None, url: str | None = None) -> list[Finding]:
        settings = load_settings(None, {"database": {"url": url or database_url}})
        findings = examine(settings, only=[check], limits=limits, timeout=60)
        assert {one.check for one in findings} == {check}
        return findings

    return look


def verdicts(findings: list[Finding]) -> list[Verdict]:
    return [one.verdict for one in findings]


def the_problem(findings: list[Finding]) -> Finding:
    """Return the only finding, which is a problem with a next step."""
    (found,) = findings
    assert found.verdict is Verdict.PROBLEM, found
    assert found.next_step
    return found
