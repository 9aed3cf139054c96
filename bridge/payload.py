"""Turns what the application gives as a payload into what the outbox stores (pure).

JSON comes from orjson, which is strict about UTF-8 and sizes of integers but writes NaN as null.
A payload that silently changes is worse than one that is refused, so NaN is looked for here.
"""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from datetime import date, time
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

import orjson

from bridge.errors import InvalidMessageError
from bridge.message import MAX_CONTENT_TYPE

DEFAULT_MAX_PAYLOAD_BYTES = 1_000_000
"""Kafka's default limit of a record is 1,048,588 bytes, with key and headers."""

_MAX_DEPTH = 256
_PLAIN = frozenset({str, int, bool, type(None)})
_CARRIED = (list, tuple, date, time, UUID, Enum, orjson.Fragment)


class EncodedPayload(NamedTuple):
    """A payload as the columns take it: `json`, or `raw` with its type, or neither (tombstone)."""

    json: str | None
    raw: bytes | None
    content_type: str | None


def encode_payload(payload: Any, content_type: str | None, max_bytes: int) -> EncodedPayload:
    """Encode and check a payload.

    dict, list, tuple, dataclass and pydantic model become JSON; str and bytes are ready JSON, which
    is checked and kept byte for byte; bytes with a `content_type` are kept as they are; None is a
    tombstone. `max_bytes` counts UTF-8 bytes. Raises InvalidMessageError.
    """
    if payload is None:
        if content_type is not None:
            raise InvalidMessageError("payload is None (a tombstone), so content_type must be None")
        return EncodedPayload(None, None, None)
    if content_type is not None:
        return _encode_raw(payload, content_type, max_bytes)
    if isinstance(payload, str):
        _check_size(len(payload) if payload.isascii() else _utf8_size(payload), max_bytes)
        _check_json(payload, "str")
        return EncodedPayload(payload, None, None)
    if isinstance(payload, (bytes, bytearray, memoryview)):
        text = bytes(payload)
        _check_size(len(text), max_bytes)
        _check_json(text, "bytes")
        return EncodedPayload(text.decode(), None, None)
    encoded = encode_json(payload)
    _check_size(len(encoded), max_bytes)
    return EncodedPayload(encoded.decode(), None, None)


def encode_json(payload: Any) -> bytes:
    """Return a dict, list, tuple, dataclass or pydantic model as JSON."""
    if not (isinstance(payload, (dict, list, tuple)) or _is_model(payload)):
        raise InvalidMessageError(
            f"payload is {type(payload).__name__}; give a dict, list, dataclass, pydantic model, "
            "JSON text (str or bytes), bytes with content_type, or None for a tombstone"
        )
    try:
        encoded = orjson.dumps(payload, default=_dump_model)
    except orjson.JSONEncodeError as error:
        flaw = _find_flaw(payload, "payload", 0)
        raise InvalidMessageError(flaw or f"payload cannot become JSON: {error}") from error
    if b"null" in encoded and _holds_non_finite(payload):
        raise InvalidMessageError(_find_flaw(payload, "payload", 0) or "payload holds NaN")
    return encoded


def _encode_raw(payload: Any, content_type: Any, max_bytes: int) -> EncodedPayload:
    if not isinstance(payload, (bytes, bytearray, memoryview)):
        raise InvalidMessageError(
            f"content_type goes with a bytes payload, which is stored as it is; payload is "
            f"{type(payload).__name__}: encode it, or leave content_type out"
        )
    if not isinstance(content_type, str) or not content_type or not content_type.isascii():
        raise InvalidMessageError(
            "content_type must be a media type such as application/x-protobuf"
        )
    if len(content_type) > MAX_CONTENT_TYPE or not content_type.isprintable():
        raise InvalidMessageError(
            f"content_type must have at most {MAX_CONTENT_TYPE} printable characters"
        )
    raw = bytes(payload)
    _check_size(len(raw), max_bytes)
    return EncodedPayload(None, raw, content_type)


def _check_size(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise InvalidMessageError(
            f"payload has {size} bytes, the limit is {max_bytes} (max_payload_bytes); store the "
            "content elsewhere and send a reference, or raise the limit here and in Kafka"
        )


def _utf8_size(text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidMessageError(
            f"payload is not valid Unicode (character {error.start} is half a surrogate pair)"
        ) from error


def _check_json(text: str | bytes, kind: str) -> None:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as error:
        hint = "give dict or list for content that is not JSON text yet"
        if kind == "bytes":
            hint = "give content_type for bytes that are not JSON"
        raise InvalidMessageError(f"payload ({kind}) is not JSON: {error}; {hint}") from error


def _is_model(value: Any) -> bool:
    """Tell whether orjson or `_dump_model` knows the value's fields; pydantic is not imported."""
    if isinstance(value, type):
        return False
    return is_dataclass(value) or callable(getattr(value, "model_dump", None))


def _dump_model(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return dump(mode="json")
    raise TypeError


def _holds_non_finite(payload: Any) -> bool:
    """Look for NaN and infinity, which orjson writes as null; on the way of every null, so lean."""
    pending = [payload]
    while pending:
        value = pending.pop()
        kind = type(value)
        if kind is dict:
            pending.extend(value.values())
        elif kind is list:
            pending.extend(value)
        elif kind is float:
            if not math.isfinite(value):
                return True
        elif kind not in _PLAIN:
            pending.extend(child for _, child in _children(value))
    return False


def _find_flaw(value: Any, path: str, depth: int) -> str | None:  # noqa: PLR0911 - one a kind
    """Return what makes a value unfit for JSON and where, or None; walks as orjson does."""
    if value is None or isinstance(value, bool):
        return None
    if depth > _MAX_DEPTH:
        return f"payload is nested more than {_MAX_DEPTH} levels deep, or contains itself"
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{path} is {value}, which JSON cannot carry"
    if isinstance(value, int):
        fits = -(2**63) <= value < 2**64
        return None if fits else f"{path} exceeds 64 bits; send it as a string"
    if isinstance(value, str):
        return None if _is_unicode(value) else f"{path} holds half a surrogate pair"
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                return f"{path} has the key {key!r} ({type(key).__name__}); JSON keys are str"
            if not _is_unicode(key):
                return f"{path} has a key with half a surrogate pair"
    elif not isinstance(value, _CARRIED) and not _is_model(value):
        return f"{path} is {type(value).__name__}, which JSON cannot carry; convert it"
    for name, child in _children(value):
        flaw = _find_flaw(child, path + name, depth + 1)
        if flaw is not None:
            return flaw
    return None


def _children(value: Any) -> list[tuple[str, Any]]:  # noqa: PLR0911 - one a kind
    if isinstance(value, dict):
        return [(f".{key}", child) for key, child in value.items()]
    if isinstance(value, (list, tuple)):
        return [(f"[{index}]", child) for index, child in enumerate(value)]
    if isinstance(value, Enum):
        return [("", value.value)]
    if isinstance(value, type):
        return []
    if is_dataclass(value):
        names = [field.name for field in fields(value) if not field.name.startswith("_")]
        return [(f".{name}", getattr(value, name)) for name in names if hasattr(value, name)]
    if _is_model(value):
        return [("", _dump_model(value))]
    return []


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
