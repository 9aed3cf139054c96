"""Passwords against argon2 hashes: slow for who guesses, quick for who is in already."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections import OrderedDict
from enum import Enum, auto
from typing import TYPE_CHECKING

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_FAILURES_ALLOWED = 10
_FAILURE_SECONDS = 60.0
_REMEMBERED = 256
_PEERS_REMEMBERED = 4096


class Verdict(Enum):
    """What became of a check."""

    RIGHT = auto()
    WRONG = auto()
    WAIT = auto()


def hash_password(password: str) -> str:
    """Hash a password for the settings, with argon2's own recommendations."""
    return PasswordHasher().hash(password)


class Passwords:
    """Checks names and passwords; safe to use from several threads.

    A browser sends the password with each request, so one that was right is remembered by a keyed
    digest until the process ends. Checks run one after the other: guessing costs one core at most.
    After ten wrong ones within a minute a peer has to wait.
    """

    def __init__(
        self, hashes: Mapping[str, str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._hashes = dict(hashes)
        self._clock = clock
        self._hasher = PasswordHasher()
        # An unknown name costs as much time as a wrong password.
        self._nobody = self._hasher.hash(secrets.token_hex(16))
        self._key = secrets.token_bytes(32)
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._failures: OrderedDict[str, list[float]] = OrderedDict()
        self._lock = threading.Lock()

    def check(self, name: str, password: str, peer: str) -> Verdict:
        """Tell whether the password is the name's."""
        text = f"{len(name)}:{name}:{password}".encode("utf-8", "surrogatepass")
        digest = hmac.new(self._key, text, hashlib.sha256).digest()
        if digest in self._right:
            return Verdict.RIGHT
        with self._lock:
            if self._must_wait(peer):
                return Verdict.WAIT
            if self._is_right(name, password):
                self._right[digest] = None
                if len(self._right) > _REMEMBERED:
                    self._right.popitem(last=False)
                return Verdict.RIGHT
            self._failures.setdefault(peer, []).append(self._clock())
            if len(self._failures) > _PEERS_REMEMBERED:
                self._failures.popitem(last=False)
            return Verdict.WRONG

    def _is_right(self, name: str, password: str) -> bool:
        try:
            self._hasher.verify(self._hashes.get(name, self._nobody), password)
        except (VerificationError, InvalidHashError, UnicodeError):
            return False
        return name in self._hashes

    def _must_wait(self, peer: str) -> bool:
        since = self._clock() - _FAILURE_SECONDS
        recent = [at for at in self._failures.get(peer, ()) if at > since]
        if recent:
            self._failures[peer] = recent
        else:
            self._failures.pop(peer, None)
        return len(recent) >= _FAILURES_ALLOWED
