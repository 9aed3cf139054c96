"""Asks a running relay's port, by the standard library alone."""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit

from bridge.errors import ConfigurationError

_OK = 200
_LONGEST = 65_536


def ask(url: str, page: str, timeout: float) -> tuple[bool, str]:
    """Return whether the relay at `url` says yes, and its words, or why it says nothing.

    Proxies and redirects play no part: a probe asks its own machine. Raises ConfigurationError for
    a URL that is none.
    """
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme != "http" or not parts.hostname or port == -1:
        raise ConfigurationError(
            f"{url!r} is no address of a relay's port; write --url http://127.0.0.1:9464"
        )
    connection = http.client.HTTPConnection(parts.hostname, port or 80, timeout=timeout)
    try:
        connection.request("GET", parts.path.rstrip("/") + page)
        answer = connection.getresponse()
        text = answer.read(_LONGEST).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return False, f"{url} does not answer: {error}"
    finally:
        connection.close()
    return answer.status == _OK, text or f"{answer.status} {answer.reason}"
