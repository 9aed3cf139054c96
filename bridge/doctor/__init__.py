"""The doctor: looks at database and Kafka, changes nothing, says what is wrong and what to do."""

from __future__ import annotations

from bridge.doctor.examination import CHECKS, examine
from bridge.doctor.finding import Finding, Verdict
from bridge.doctor.limits import Limits

__all__ = ["CHECKS", "Finding", "Limits", "Verdict", "examine"]
