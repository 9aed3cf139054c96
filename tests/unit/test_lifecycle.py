"""The table of transitions, the page in the docs and the SQL say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bridge.lifecycle import TRANSITIONS, Status, is_allowed

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "lifecycle.md").read_text(encoding="utf-8")
QUERIES = ROOT / "bridge" / "database" / "queries"

_ARROW = re.compile(r"^    (\S+) --> (\S+): (.+)$", re.MULTILINE)
_CHANGE = re.compile(r'update :"schema"\.app_outbox\s+as o\s+set\s+status = (\S+?),\s')
_START = re.compile(r"o\.status (?:= '([A-Z]+)'|in \(([^)]+)\))")

STATEMENTS = {
    "claim_rows": {"claim"},
    "claim_rows_skipping": {"claim"},
    "claim_ordered": {"claim"},
    "claim_suspect": {"claim"},
    "settle_sent": {"ack", "late ack"},
    "settle_failed": {"transient error", "refused"},
    "release_rows": {"release"},
    "rescue_claim": {"rescue"},
    "count_deaths": {"poison"},
    "reconcile_claims": {"rescue"},
}
"""Statements that change a status, and the transitions that they make."""


def test_the_diagram_shows_exactly_the_transitions() -> None:
    drawn = {(source, target, name) for source, target, name in _ARROW.findall(PAGE)}
    assert drawn == {(t.source or "[*]", t.target, t.name) for t in TRANSITIONS}


def test_the_table_in_the_docs_repeats_the_transitions() -> None:
    written = set()
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 7 and cells[1] in Status.__members__:
            written.add(tuple(cells[:6]))
    assert written == {
        (
            t.source or "(nothing)",
            t.target,
            t.name,
            t.claim,
            "yes" if t.charged else "no",
            "yes" if t.audited else "no",
        )
        for t in TRANSITIONS
    }


def test_the_docs_describe_every_status() -> None:
    described = re.findall(r"^\| `([A-Z]+)` \|", PAGE, re.MULTILINE)
    assert described == list(Status)


def test_no_other_statement_changes_a_status() -> None:
    changing = {
        path.stem
        for path in QUERIES.glob("*.sql")
        if _CHANGE.search(path.read_text(encoding="utf-8"))
    }
    assert changing == STATEMENTS.keys()


@pytest.mark.parametrize("name", STATEMENTS)
def test_each_statement_starts_from_and_sets_what_its_transitions_say(name: str) -> None:
    text = (QUERIES / f"{name}.sql").read_text(encoding="utf-8")
    expected = [t for t in TRANSITIONS if t.name in STATEMENTS[name]]
    starts = {
        status
        for one, several in _START.findall(text)
        for status in ([one] if one else re.findall(r"'([A-Z]+)'", several))
    }
    assert starts == {t.source for t in expected}
    change = _CHANGE.search(text)
    assert change is not None
    target = change[1].strip("'")
    if target != "failure.status":  # settle_failed is told the target by bridge/relay/settlement.py
        assert {target} == {t.target for t in expected}
    claims = {t.claim for t in expected}
    assert ("claim_id = null" in text) == (claims == {"none"})
    assert ("claim_id = :'claim_id'::uuid,\n" in text) == (claims == {"fresh"})
    assert ("retry_count = o.retry_count +" in text) == any(t.charged for t in expected)


def test_the_schema_knows_the_same_states() -> None:
    text = (ROOT / "schemas/postgres/migrations/0001_outbox.up.sql").read_text(encoding="utf-8")
    check = re.search(r"check \(\s*status in \(([^)]+)\)", text)
    assert check is not None
    assert re.findall(r"'([A-Z]+)'", check[1]) == list(Status)


@pytest.mark.parametrize("target", Status)
@pytest.mark.parametrize("source", [None, *Status])
def test_what_is_not_listed_is_not_allowed(source: Status | None, target: Status) -> None:
    listed = any((t.source, t.target) == (source, target) for t in TRANSITIONS)
    assert is_allowed(source, target) == listed


def test_operator_actions_are_audited_and_take_the_token_away() -> None:
    for transition in TRANSITIONS:
        assert not transition.audited or transition.claim == "none"
        # What a relay does alone never leaves a final state.
        if transition.source in {Status.SENT, Status.FAILED, Status.CANCELLED}:
            assert transition.audited
        if transition.target is Status.CANCELLED:
            assert transition.audited


def test_no_transition_leads_from_a_status_to_itself_or_out_of_cancelled() -> None:
    assert all(t.source is not t.target for t in TRANSITIONS)
    assert all(t.source is not Status.CANCELLED for t in TRANSITIONS)
