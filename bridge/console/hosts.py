"""Which Host and Origin headers are ours: a foreign name that resolves to us is refused."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from bridge.settings import ConsoleSettings


class Hosts:
    """The names under which the console may be asked.

    An address is always allowed: DNS rebinding needs a name. So are `localhost`, the host that is
    listened on, the public URL's host, and those of `console.allowed_hosts`.
    """

    def __init__(self, settings: ConsoleSettings) -> None:
        names = {"localhost", settings.host, *settings.allowed_hosts}
        self._public = urlsplit(settings.public_url) if settings.public_url else None
        if self._public is not None and self._public.hostname:
            names.add(self._public.hostname)
        self._names = {name.lower().rstrip(".") for name in names}

    def is_ours(self, host: str) -> bool:
        """Tell whether a Host header's value names this console."""
        name = _name_of(host)
        return name is not None and (name in self._names or _is_address(name))

    def is_same_origin(self, origin: str, host: str) -> bool:
        """Tell whether an Origin header's value is the console's own, asked for as `host`."""
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        if parts.scheme not in ("http", "https"):
            return False
        if parts.netloc.lower() == host.lower():
            return True
        return self._public is not None and (parts.scheme, parts.netloc.lower()) == (
            self._public.scheme,
            self._public.netloc.lower(),
        )


def _name_of(host: str) -> str | None:
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # raises where it is no number
    except ValueError:
        return None
    if parts.username is not None or parts.path or parts.query or parts.fragment:
        return None
    return parts.hostname.rstrip(".") if parts.hostname else None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
