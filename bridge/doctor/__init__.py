"""The doctor: looks at database and Kafka, changes nothing, says what is wrong and what to do."""

from __future__ import annotations

from bridge.doctor.examination import examine
from bridge.doctor.finding import Finding, Verdict

__all__ = ["Finding", "Verdict", "examine"]
