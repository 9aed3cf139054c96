"""What can become of a message, and what a handler may say by raising."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from bridge.retry import Backoff

HANDLER_FAILED = "HANDLER_FAILED"
REJECTED = "REJECTED"
UNDECODABLE = "UNDECODABLE"
KEY_REUSED = "KEY_REUSED"
NO_HANDLER = "NO_HANDLER"


class RejectError(Exception):
    """Raised by a handler: this message can never be handled, do not try it again.

    It goes to the dead-letter topic with `code` and the text as its reason.
    """

    def __init__(self, reason: str, *, code: str = REJECTED) -> None:
        super().__init__(reason)
        self.code = code


class RetryLaterError(Exception):
    """Raised by a handler: not now. `after` is in seconds; None leaves it to the retry policy.

    `charged` False keeps the attempt free of charge: it is not the message's fault.
    """

    def __init__(
        self, reason: str = "", *, after: float | None = None, charged: bool = False
    ) -> None:
        super().__init__(reason or "the handler asks for a later time")
        self.after = after
        self.charged = charged


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and when a message is tried again.

    After `attempts` charged failures it goes to the dead-letter topic; where there is none, it is
    tried for ever. The waits are 2, 4, 8 … times `base` seconds, at most
    `cap`, up to `jitter` more.
    """

    attempts: int = 5
    base: float = 0.5
    cap: float = 60.0
    jitter: float = 0.1

    def delay(self, failures: int) -> float:
        """Return the seconds to wait after failure number `failures`, from 1."""
        return Backoff(self.base, self.cap, self.jitter).delay(failures)


class Fate(StrEnum):
    """What became of a message that is done with; also the metrics' attribute."""

    PROCESSED = "processed"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    """Its key stands for other content."""
    DEAD_LETTERED = "dead-lettered"
    UNHANDLED = "unhandled"
    """No handler wants its type."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The fate of a message, with the handler's result or the one that the inbox kept."""

    fate: Fate
    result: Any = None


PROCESSED = Outcome(Fate.PROCESSED)
