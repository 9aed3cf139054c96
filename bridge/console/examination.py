"""The doctor's latest findings: it may take seconds, so it runs beside the pages."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from bridge.doctor import Verdict, examine

if TYPE_CHECKING:
    from bridge.doctor import Finding
    from bridge.settings import Settings

_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True)
class Report:
    """What was found, when, and how long it took; `error` where the examination itself failed."""

    findings: tuple[Finding, ...]
    taken_at: datetime
    seconds: float
    error: str = ""

    def of(self, verdict: Verdict) -> list[Finding]:
        """Return the findings of one verdict."""
        return [finding for finding in self.findings if finding.verdict == verdict]


class Examination:
    """Runs one examination at a time and keeps the latest report; safe from several threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.report: Report | None = None

    @property
    def is_running(self) -> bool:
        """Tell whether one is under way."""
        thread = self._thread
        return thread is not None and thread.is_alive()

    def start(self) -> None:
        """Begin an examination, unless one is under way."""
        with self._lock:
            if not self.is_running:
                # A daemon: it only looks, so nothing is lost where the console ends meanwhile.
                self._thread = threading.Thread(target=self._run, name="examination", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        began = datetime.now(UTC)
        findings: tuple[Finding, ...] = ()
        error = ""
        try:
            findings = tuple(examine(self._settings, timeout=_TIMEOUT))
        except Exception as failure:  # noqa: BLE001 - a thread's outermost edge: the page tells it
            error = f"{type(failure).__name__}: {failure}"
        seconds = (datetime.now(UTC) - began).total_seconds()
        self.report = Report(findings, began, seconds, error)
