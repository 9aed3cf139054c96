"""Runs the checks and gathers what they found."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from bridge.doctor.finding import Finding
    from bridge.settings import Settings

TIMEOUT = 10.0
"""Seconds that each part (the database, a statement, Kafka) may take to answer."""


def examine(
    settings: Settings,
    *,
    only: Collection[str] = (),
    skip: Collection[str] = (),
    timeout: float = TIMEOUT,
) -> list[Finding]:
    """Look at database and Kafka, change nothing, and say what was found, in a fixed order.

    `only` and `skip` are names of checks. Blocks for up to a few times `timeout` seconds: call it
    from a thread where others must go on. Nothing that is wrong outside raises: a part that does not answer is a
    finding whose verdict is unknown.
    """
    raise NotImplementedError
