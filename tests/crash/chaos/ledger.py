"""What the writers of a round know: which messages must come, and which must never."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


@dataclass
class Ledger:
    """Message keys by their fate. Written by several threads.

    `unknown`: the connection was lost during COMMIT, so that only the database knows. `withdrawn`
    ones were cancelled before they were due, `hopeless` ones name a topic that cannot exist.
    """

    committed: set[str] = field(default_factory=set)
    rolled_back: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    withdrawn: set[str] = field(default_factory=set)
    hopeless: set[str] = field(default_factory=set)
    enqueued_twice: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
