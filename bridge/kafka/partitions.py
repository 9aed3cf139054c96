"""Which partition a key goes to (pure): murmur2, as Java's default partitioner computes it.

The producer's `partitioner=murmur2_random` computes the same for every record that has a key.
"""

from __future__ import annotations

from struct import unpack_from

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition, from 0, of a key (an empty one too) among `partitions` ≥ 1.

    Java: `toPositive(murmur2(key)) % partitions` (org.apache.kafka.common.utils.Utils).
    """
    return (murmur2(key) & _POSITIVE) % partitions


def murmur2(key: bytes) -> int:
    """Return Austin Appleby's MurmurHash2 of `key` with Kafka's seed, 0 ≤ hash < 2^32."""
    length = len(key)
    value = _SEED ^ length
    for word in unpack_from(f"<{length >> 2}I", key):
        mixed = word * _MULTIPLIER & _MASK
        value = (value * _MULTIPLIER ^ (mixed ^ mixed >> 24) * _MULTIPLIER) & _MASK
    rest = length & 3
    if rest:
        value = (value ^ int.from_bytes(key[-rest:], "little")) * _MULTIPLIER & _MASK
    value = (value ^ value >> 13) * _MULTIPLIER & _MASK
    return value ^ value >> 15
