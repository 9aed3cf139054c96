"""How many bytes a record is to the broker (pure)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

BATCH_OVERHEAD = 61
"""The header of a record batch, format v2."""
_RECORD_OVERHEAD = 3
"""Attributes, and the distances in time and offset from the batch: 0 where a record is alone."""


def record_size(
    key: str | bytes | None, value: bytes | None, headers: Mapping[str, str | bytes | None]
) -> int:
    """Return the bytes of this record alone in a batch, uncompressed.

    A broker compares this with `max.message.bytes`, after compression: an uncompressed record of at
    most the limit is taken, a larger one is refused, and one that shrinks to the limit is taken.
    The layout is Kafka's record format v2 (protocol guide, "Record Batch").
    """
    body = _RECORD_OVERHEAD + _field(key) + _field(value) + _varint(len(headers))
    for name, content in headers.items():
        body += _field(name) + _field(content)
    return BATCH_OVERHEAD + _varint(body) + body


def _field(content: str | bytes | None) -> int:
    if content is None:
        return 1  # the length -1
    length = len(content)
    if isinstance(content, str) and not content.isascii():
        length = len(content.encode())
    return _varint(length) + length


def _varint(number: int) -> int:
    """Return the bytes of a zigzag varint: 7 bits a byte, one bit for the sign."""
    return max(1, -(-(number.bit_length() + 1) // 7))
