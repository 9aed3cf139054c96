"""Backoff between attempts (pure)."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff: `min(base * 2^n, cap)` seconds, where n counts the failures so far.

    `base` and `cap` are seconds, `jitter` is the largest share added on top (never taken away, so
    that no retry comes earlier than promised). With the defaults the waits are 2, 4, 8, 16 and 32
    minutes, and 60 minutes from the sixth failure on.
    """

    base: float = 60.0
    cap: float = 3600.0
    jitter: float = 0.1

    def delay(self, failures: int, draw: Callable[[], float] = random.random) -> float:
        """Seconds to wait after failure number `failures` (1 for the first).

        `draw` returns a number in [0, 1). No count overflows: an integer shift is compared with
        the cap before anything becomes a float.
        """
        if failures < 1:
            raise ValueError(f"failures counts from 1, got {failures}")
        # Past this many doublings the cap is reached for every positive base a setting allows.
        exponent = min(failures, 64)
        wait = min(self.base * float(1 << exponent), self.cap)
        return wait * (1.0 + self.jitter * draw())
