"""Who somebody is and what they may do: from the proxy's header, a password, or this machine."""

from __future__ import annotations

import base64
import binascii
import getpass
import ipaddress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from bridge.console.passwords import Passwords, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.settings import ConsoleSettings

_LONGEST_LOGIN = 100
_REALM = 'Basic realm="outbox-bridge console", charset="UTF-8"'


class Role(StrEnum):
    """A viewer sees everything, an operator acts as well."""

    VIEWER = "viewer"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Identity:
    """Somebody who was let in. `name` is what the audit records."""

    name: str
    role: Role

    @property
    def may_act(self) -> bool:
        """Tell whether actions are open to them."""
        return self.role is Role.OPERATOR


class Refusal(Exception):  # noqa: N818 - an outcome of a request, not an error of ours
    """The request is not let in; `status` and `headers` go into the answer."""

    def __init__(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers or {}


class Door(Protocol):
    """One way to find out who somebody is."""

    def identify(self, peer: str | None, header: Sequence[str]) -> Identity:
        """Return who it is, from the peer's address and the values of the header that tells.

        Raises Refusal. May take a moment: a password is checked.
        """

    @property
    def header(self) -> str:
        """The header that tells, in lower case."""


def door_for(settings: ConsoleSettings) -> Door:
    """Choose the way that the settings ask for."""
    if settings.auth == "basic":
        return _PasswordDoor(settings)
    if settings.auth == "proxy":
        return _ProxyDoor(settings)
    return _OpenDoor(Role(settings.role))


class _OpenDoor:
    """Everybody on this machine, under the name of the system's user who runs the console."""

    header = "authorization"

    def __init__(self, role: Role) -> None:
        self._identity = Identity(f"{_system_user()} (console)", role)

    def identify(self, peer: str | None, header: Sequence[str]) -> Identity:
        del peer, header
        return self._identity


def _system_user() -> str:
    try:
        return getpass.getuser()[:_LONGEST_LOGIN]
    except (KeyError, OSError):
        return "somebody"


class _PasswordDoor:
    """HTTP basic authentication against the argon2 hashes of the settings."""

    header = "authorization"

    def __init__(self, settings: ConsoleSettings) -> None:
        entries = [user.get_secret_value().split(":", 2) for user in settings.users]
        self._roles = {name: Role(role) for name, role, _ in entries}
        self._passwords = Passwords({name: digest for name, _, digest in entries})

    def identify(self, peer: str | None, header: Sequence[str]) -> Identity:
        if not header:
            raise Refusal(401, "Sign in to see the console.", {"WWW-Authenticate": _REALM})
        name, password = _credentials(header)
        verdict = self._passwords.check(name, password, peer or "")
        if verdict is Verdict.WAIT:
            raise Refusal(429, "Too many wrong passwords; wait a minute.", {"Retry-After": "60"})
        if verdict is Verdict.WRONG:
            raise Refusal(401, "Name or password is wrong.", {"WWW-Authenticate": _REALM})
        return Identity(name, self._roles[name])


def _credentials(header: Sequence[str]) -> tuple[str, str]:
    scheme, _, encoded = header[0].partition(" ")
    try:
        name, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (ValueError, binascii.Error):
        colon = ""
    if len(header) > 1 or scheme.lower() != "basic" or not colon:
        raise Refusal(401, "The Authorization header cannot be read.", {"WWW-Authenticate": _REALM})
    return name, password


class _ProxyDoor:
    """The login that a trusted reverse proxy names; nobody else's word is taken."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self.header = settings.user_header.lower()
        self._shown = settings.user_header
        self._trusted = [ipaddress.ip_network(proxy) for proxy in settings.trusted_proxies]
        self._operators = frozenset(settings.operators)

    def identify(self, peer: str | None, header: Sequence[str]) -> Identity:
        if not self._is_trusted(peer):
            raise Refusal(
                403,
                f"The console is reached through its proxy; {peer or 'this peer'} is not among "
                "console.trusted_proxies.",
            )
        if len(header) != 1 or not (name := header[0].strip()) or not name.isprintable():
            raise Refusal(
                403, f"The proxy must send exactly one {self._shown} header with a login."
            )
        name = name[:_LONGEST_LOGIN]
        may_act = "*" in self._operators or name in self._operators
        return Identity(name, Role.OPERATOR if may_act else Role.VIEWER)

    def _is_trusted(self, peer: str | None) -> bool:
        try:
            address = ipaddress.ip_address(peer or "")
        except ValueError:
            return False
        # A socket of both families shows an IPv4 peer as ::ffff:10.0.0.5.
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self._trusted)
