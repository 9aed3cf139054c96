"""What must hold among the console's settings (pure)."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.settings import ConsoleSettings, Settings

ROLES = ("viewer", "operator")
_SHORTEST_SECRET = 16


def is_loopback(host: str) -> bool:
    """Tell whether a host to listen on is reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def console_contradictions(settings: Settings) -> Iterator[str]:
    """Write a line for each rule among the console's settings that does not hold."""
    console = settings.console

    def said(name: str) -> str:
        return settings.origin("console", name).where

    yield from _access(console, said("host"), said("auth"))
    yield from _users(console, said("users"))
    for proxy in console.trusted_proxies:
        try:
            ipaddress.ip_network(proxy)
        except ValueError:
            yield (
                f"console.trusted_proxies names {proxy!r} ({said('trusted_proxies')}), which is "
                "neither an address nor a network such as 10.0.0.0/24"
            )
    if console.public_url is not None:
        parts = urlsplit(console.public_url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            yield (
                f"console.public_url = {console.public_url!r} ({said('public_url')}) must be "
                "https://host or https://host/path"
            )
    if console.trace_link is not None and (
        "{trace_id}" not in console.trace_link
        or urlsplit(console.trace_link).scheme not in ("http", "https")
    ):
        yield (
            f"console.trace_link = {console.trace_link!r} ({said('trace_link')}) must be a URL "
            "with {trace_id} in it, such as https://traces.example.net/trace/{trace_id}"
        )
    if console.secret is not None and len(console.secret.get_secret_value()) < _SHORTEST_SECRET:
        yield (
            f"console.secret ({said('secret')}) must have at least {_SHORTEST_SECRET} characters; "
            "make one with: openssl rand -hex 32"
        )


def _access(console: ConsoleSettings, host: str, auth: str) -> Iterator[str]:
    if console.auth == "none" and not is_loopback(console.host):
        yield (
            f"console.host = {console.host!r} ({host}) is reached from other machines, with "
            f'console.auth = "none" ({auth}): set console.auth to "basic" or "proxy", or '
            "listen on 127.0.0.1"
        )
    if console.auth == "basic" and not console.users:
        yield (
            f'console.auth = "basic" ({auth}) needs console.users: '
            "`outbox-bridge console --add-user NAME` asks for a password and prints the entry"
        )
    if console.auth == "proxy" and not console.trusted_proxies:
        yield (
            f'console.auth = "proxy" ({auth}) needs console.trusted_proxies: the addresses from '
            "which the proxy connects; nobody else's user header is believed"
        )


def _users(console: ConsoleSettings, where: str) -> Iterator[str]:
    seen: set[str] = set()
    for index, user in enumerate(console.users):
        name, role, digest = (*user.get_secret_value().split(":", 2), "", "")[:3]
        if not name or role not in ROLES or not digest.startswith("$argon2"):
            yield (
                f"console.users[{index}] ({where}) must be name:role:hash, with role viewer or "
                "operator and an argon2 hash, as `outbox-bridge console --add-user NAME` prints it"
            )
        elif name in seen:
            yield f"console.users[{index}] ({where}) names {name!r} a second time: remove one"
        seen.add(name)
