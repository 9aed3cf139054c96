"""The partition of a key, as Java's, aiokafka's and the relay's own producer choose it."""

from __future__ import annotations

import pytest
from aiokafka import partitioner
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.kafka.partitions import murmur2, partition_of

# From the tests of the Java client, which has signed integers.
JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "hash_"), JAVA.items())
def test_the_hash_is_javas(key: bytes, hash_: int) -> None:
    assert murmur2(key) == hash_ % 2**32


@given(st.binary(max_size=300), st.integers(1, 1000))
@example(b"", 6)
@example(b"\xff" * 7, 6)
def test_every_key_goes_where_aiokafka_sends_it(key: bytes, partitions: int) -> None:
    numbers = list(range(partitions))
    assert partition_of(key, partitions) == partitioner.DefaultPartitioner()(key, numbers, numbers)
