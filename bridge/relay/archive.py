"""The archive file: pruned rows as JSON, one object a line."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from bridge.errors import OutboxError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_TAIL = 65536


class ArchiveFile:
    """Appends rows to a JSONL file and returns only when they are on disk.

    Several processes of one machine may append to it. A line that a crash cut short is taken off
    before the next append: its row was never deleted. A row that was appended while the delete
    after it failed stands in the file twice; `outbox_id` tells.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, rows: Iterable[str]) -> int:
        """Append JSON texts, one a line, and force them to disk; returns their number.

        Raises OutboxError that names the file; what was written of the rows until then is taken
        off again.
        """
        try:
            is_new = not self._path.exists()
            with self._path.open("ab+") as file:
                fcntl.flock(file, fcntl.LOCK_EX)  # given back when the file is closed
                end = _whole_lines(file.fileno())
                file.truncate(end)
                count = 0
                try:
                    for row in rows:
                        # Newlines in a JSON text are space between its parts, never within strings.
                        line = row.replace("\n", " ").replace("\r", " ")
                        file.write(line.encode() + b"\n")
                        count += 1
                    file.flush()
                    os.fsync(file.fileno())
                except BaseException:
                    with suppress(OSError):  # a full disk: the lines stay, and are written again
                        file.flush()
                        os.ftruncate(file.fileno(), end)
                    raise
            if is_new:
                self._sync_folder()
        except OSError as error:
            raise OutboxError(
                f"the archive file {self._path} cannot be written: {error.strerror or error}; "
                "nothing is pruned until it can (setting retention.archive_file)"
            ) from error
        return count

    def _sync_folder(self) -> None:
        """Force the new file's name to disk, too."""
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _whole_lines(descriptor: int) -> int:
    """Return the size up to and including the last newline."""
    end = os.fstat(descriptor).st_size
    while end > 0:
        start = max(0, end - _TAIL)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
