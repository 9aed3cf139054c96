"""The account that PostgreSQL runs under: it refuses to run as root."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_NAMES = ("postgres", "nobody")
_SEARCH_OTHERS, _SEARCH_GROUP, _SEARCH_OWNER = 0o001, 0o010, 0o100


@dataclass(frozen=True, slots=True)
class Account:
    """An ordinary user of this machine.

    `keep_reach`: it may not enter some folder on the way (a checkout in /root, say), so its
    processes keep the one capability that lets them pass. Opening such folders to everybody
    instead would be a change that the owner did not ask for.
    """

    name: str
    uid: int
    gid: int
    keep_reach: bool = False


def server_account(paths: Iterable[Path]) -> Account | None:
    """Return the account for servers that must reach `paths`; None means the caller's own.

    Raises LocalError where this is root and the machine knows no ordinary user.
    """
    if os.geteuid() != 0:
        return None
    for name in _NAMES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid == 0:
            continue
        closed = any(not _reachable(path, entry.pw_uid, entry.pw_gid) for path in paths)
        return Account(name, entry.pw_uid, entry.pw_gid, keep_reach=closed)
    raise LocalError(
        "PostgreSQL does not run as root, and this machine has neither a user 'postgres' nor "
        "'nobody'. Create one (useradd --system postgres) or run as an ordinary user."
    )


def _reachable(path: Path, uid: int, gid: int) -> bool:
    path = path.resolve()
    for folder in [path, *path.parents]:
        if not folder.exists():
            continue
        status = folder.stat()
        if status.st_uid == uid:
            needed = _SEARCH_OWNER
        elif status.st_gid == gid:
            needed = _SEARCH_GROUP
        else:
            needed = _SEARCH_OTHERS
        if not status.st_mode & needed:
            return False
    return True
