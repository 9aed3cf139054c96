"""One process at a time: a lock on a file, which the kernel lets go when its holder ends."""

from __future__ import annotations

import contextlib
import fcntl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@contextlib.contextmanager
def file_lock(path: Path, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock on `path` for the block; `waiting` is called once if another holds it.

    The file stays: removing it would let two processes hold locks on two files of one name.
    """
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting is not None:
                waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
