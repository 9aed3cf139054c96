"""What a check of the doctor found (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """What a check says."""

    OK = "ok"
    PROBLEM = "problem"
    UNKNOWN = "unknown"
    """It could not be looked at: no answer, no right to see it, or an earlier check failed."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One verdict of one check; a check that found several problems gives one for each.

    `check` is a stable name, a heading of `docs/runbook.md`. `evidence` is what was seen, in words
    and numbers, never with a secret; `next_step` is what to do, empty where nothing is to be done.
    """

    check: str
    verdict: Verdict
    evidence: str
    next_step: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a check returns; the examination adds the check's name."""

    verdict: Verdict
    evidence: str
    next_step: str = ""


def ok(evidence: str) -> Outcome:
    """Say that all is well, or that nothing is to be done about it."""
    return Outcome(Verdict.OK, evidence)


def problem(evidence: str, next_step: str) -> Outcome:
    """Say that something is wrong or will be."""
    return Outcome(Verdict.PROBLEM, evidence, next_step)


def unknown(evidence: str, next_step: str) -> Outcome:
    """Say that it cannot be told."""
    return Outcome(Verdict.UNKNOWN, evidence, next_step)
