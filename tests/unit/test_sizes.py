"""How large a record is alone in its batch."""

from __future__ import annotations

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.encoding.sizes import record_size

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
KEYS = st.none() | TEXTS | st.binary(max_size=200)
HEADERS = st.dictionaries(TEXTS, st.none() | TEXTS | st.binary(max_size=200), max_size=6)


def encoded(text: str | bytes | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text


def batch_of(
    key: str | bytes | None, value: bytes | None, headers: dict[str, str | bytes | None]
) -> bytes:
    """Write the record as another client does, in a batch of its own."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        batch_size=10_000_000,
    )
    written = [(name, encoded(content)) for name, content in headers.items()]
    builder.append(0, timestamp=1_700_000_000_000, key=encoded(key), value=value, headers=written)
    return bytes(builder.build())


@given(KEYS, st.none() | st.binary(max_size=300), HEADERS)
@example(None, None, {})
@example("", b"", {})
@example("ключ", b"x" * 62, {"größe": "∞", "": None})
def test_the_size_is_that_of_a_batch_of_this_record_alone(
    key: str | bytes | None, value: bytes | None, headers: dict[str, str | bytes | None]
) -> None:
    assert record_size(key, value, headers) == len(batch_of(key, value, headers))


@pytest.mark.parametrize("edge", [63, 64, 8_191, 8_192, 1_048_575, 1_048_576])
def test_lengths_about_to_need_another_byte_are_counted_right(edge: int) -> None:
    for size in range(edge - 20, edge + 3):
        value = b"x" * size
        assert record_size("k", value, {}) == len(batch_of("k", value, {}))
