"""The reason that every operator action needs (pure)."""

from __future__ import annotations

from bridge.errors import InvalidOperationError

MAX_REASON = 1000


def checked_reason(reason: str, error: type[InvalidOperationError] = InvalidOperationError) -> str:
    """Return the reason without the space around it; raise `error` where it is none."""
    text = reason.strip()
    if not text or "\0" in text:
        raise error("the reason is blank; say why in a few words, the audit keeps it")
    if len(text) > MAX_REASON:
        raise error(
            f"the reason has {len(text)} characters, at most {MAX_REASON} are kept; shorten it"
        )
    return text
