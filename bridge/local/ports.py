"""Free TCP ports on this machine."""

from __future__ import annotations

import random
import socket

from bridge.errors import LocalError

LOOPBACK = "127.0.0.1"

# Below the ports that systems hand out for outgoing connections, so that nothing takes a server's
# port while that server restarts.
_FIRST, _LAST = 15_000, 32_000
_ATTEMPTS = 200


def free_ports(count: int, preferred: list[int] | None = None) -> list[int]:
    """Return `count` different free ports, the preferred ones where they are still free.

    They are free now, not reserved: a server that finds its port taken has to ask again.
    Raises LocalError where none is found.
    """
    if preferred and len(preferred) == count and all(_is_free(port) for port in preferred):
        return list(preferred)
    found: list[int] = []
    for _ in range(_ATTEMPTS * count):
        port = random.randint(_FIRST, _LAST)  # noqa: S311 - nothing secret about a port
        if port not in found and _is_free(port):
            found.append(port)
            if len(found) == count:
                return found
    raise LocalError(f"No free port found between {_FIRST} and {_LAST} on {LOOPBACK}.")


def is_open(port: int) -> bool:
    """Whether something accepts connections on this port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
